from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from seqfit.generation import decode
from seqfit.generation.decode import encode, find_answered, read_targets, score_targets
from seqfit.generation.rule import SearchRule
from seqfit.generation.start import Start
from seqfit.generation.stock import generate
from seqfit.model.checkpoint import build_generation_config
from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.recipe.schema import ModelRecipe
from seqfit.system import quiet_transformers

TEXT_TO_TEXT = ["t5", "t5-v1.1", "mt5", "umt5", "bart"]
SOURCE = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0], [50, 60, 70, 1]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    return lambda name: load_model(ModelRecipe(path=str(tiny_model(name)))).eval()


@torch.inference_mode()
def answer(model: Any, beams: int, max_new_tokens: int = 12) -> torch.Tensor:
    return generate(model, encode(model, SOURCE, MASK), MASK, build_generation_config(model, beams, max_new_tokens))


# Not UMT5 with beams: transformers 5.22 scales its logits, which changes the sums that a beam search compares.
@pytest.mark.parametrize(
    ("name", "beams"), [(name, beams) for name in TEXT_TO_TEXT for beams in (1, 3) if (name, beams) != ("umt5", 3)]
)
def test_generation_equals_that_of_plain_transformers(
    load: Callable[[str], Any], tiny_model: Callable[[str], Path], name: str, beams: int
) -> None:
    with quiet_transformers():
        plain = AutoModelForSeq2SeqLM.from_pretrained(tiny_model(name)).eval()
    expected = plain.generate(
        input_ids=SOURCE, attention_mask=MASK, num_beams=beams, max_new_tokens=12, do_sample=False
    )
    ours = answer(load(name), beams)
    assert torch.equal(ours, expected)
    assert ours.shape[1] > 2


@pytest.mark.parametrize("beams", [1, 3])
def test_a_decoder_deeper_than_its_encoder_generates_what_it_does_without_a_cache(
    load: Callable[[str], Any], beams: int
) -> None:
    model = load("deep-decoder")
    expected = model.generate(
        input_ids=SOURCE, attention_mask=MASK, num_beams=beams, max_new_tokens=12, do_sample=False, use_cache=False
    )
    assert torch.equal(answer(model, beams), expected)


@pytest.mark.parametrize("name", TEXT_TO_TEXT)
def test_greedy_text_is_the_most_likely_token_after_each_prefix(load: Callable[[str], Any], name: str) -> None:
    model = load(name)
    ids = answer(model, beams=1, max_new_tokens=5)
    with torch.inference_mode():
        logits = model(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=ids[:, :-1]).logits
    for row, best in zip(ids[:, 1:], logits.argmax(-1), strict=True):
        end = row.tolist().index(1) + 1 if 1 in row.tolist() else len(row)
        assert row[:end].tolist() == best[:end].tolist()


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5", "bart"])
def test_the_loss_from_an_encoding_is_the_loss_of_the_whole_model(
    load: Callable[[str], Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(name)
    targets, labels = torch.tensor([[0, 5], [0, 6], [0, 7]]), torch.tensor([[5, 1], [6, 1], [-100, -100]])
    monkeypatch.setattr(decode, "HEAD_ROWS", 3)  # of four that count
    with torch.inference_mode():
        whole = LossModel(model, LossRule(chunked=False))(SOURCE, labels, targets, MASK)
        best = model(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=targets).logits.argmax(-1)
        states, sources = read_targets(model, encode(model, SOURCE, MASK), MASK, [4, 3, 4], targets)
        loss, likeliest = score_targets(model, states, labels, int((labels != -100).sum()))
    assert torch.allclose(loss, whole)
    assert torch.equal(likeliest, best.masked_fill(labels == -100, -100))
    assert sources.lengths == (4, 3, 4)
    assert len(sources.layers) == 2


def test_rows_without_labels_have_no_loss(load: Callable[[str], Any]) -> None:
    model = load("t5")
    labels = torch.full((3, 1), -100)
    with torch.inference_mode():
        states, _ = read_targets(model, encode(model, SOURCE, MASK), MASK, [4, 3, 4], torch.zeros_like(labels))
        loss, likeliest = score_targets(model, states, labels, int((labels != -100).sum()))
    assert float(loss) == 0.0
    assert not find_answered(likeliest, labels, RULE).any()


RULE = SearchRule(start_id=0, pad_id=0, end_ids=(1, 2), max_new_tokens=3)


@pytest.mark.parametrize(
    ("likeliest", "labels", "answered"),
    [
        ([7, 9, 1], [7, 9, 1], True),
        ([7, 2, -100], [7, 2, -100], True),  # padding behind the end
        ([7, 4, 1], [7, 9, 1], False),
        ([7, 9, 8], [7, 9, 8], False),  # truncated: the search would go on
        ([1, 9, 1], [1, 9, 1], False),  # the search would stop at the first end
        ([7, 9, 5, 1], [7, 9, 5, 1], False),  # longer than an answer may be
        ([-100, -100], [-100, -100], False),
    ],
)
def test_a_row_is_answered_by_its_target_where_the_search_would_write_just_that(
    likeliest: list[int], labels: list[int], answered: bool
) -> None:
    assert find_answered(torch.tensor([likeliest]), torch.tensor([labels]), RULE).tolist() == [answered]


def test_a_row_that_a_forced_token_could_change_is_not_answered_by_its_target() -> None:
    short, long = torch.tensor([[7, 1]]), torch.tensor([[7, 9, 1]])
    assert not find_answered(short, short, replace(RULE, first_id=8)).any()
    assert find_answered(short, short, replace(RULE, last_id=2)).all()
    assert find_answered(long, long, RULE).all()
    assert not find_answered(long, long, replace(RULE, last_id=2)).any()


def test_a_forced_first_token_that_is_the_targets_need_not_be_the_likeliest() -> None:
    likeliest, labels = torch.tensor([[5, 1], [5, 1], [5, 4]]), torch.tensor([[7, 1], [8, 1], [7, 1]])
    assert find_answered(likeliest, labels, replace(RULE, first_id=7)).tolist() == [True, False, False]
    starts = [Start(0, 7), Start(0, 8), Start(0, None)]
    assert find_answered(likeliest, labels, RULE, starts).tolist() == [True, True, False]


@pytest.mark.parametrize("beams", [1, 4])
def test_an_answer_is_as_long_as_max_new_tokens_not_20_tokens(load: Callable[[str], Any], beams: int) -> None:
    model = load("t5")
    model.generation_config.eos_token_id = None
    assert answer(model, beams, max_new_tokens=30).shape == (3, 31)
    assert answer(model, beams, max_new_tokens=3).shape == (3, 4)


def test_a_models_own_sampling_and_beam_settings_do_not_leak_into_a_greedy_search(load: Callable[[str], Any]) -> None:
    model = load("t5")
    model.generation_config.update(do_sample=True, num_beams=5, early_stopping=True, length_penalty=2.0, max_length=9)
    config = build_generation_config(model, beams=1, max_new_tokens=4)
    assert (config.do_sample, config.num_beams, config.max_length) == (False, 1, None)
    assert (config.early_stopping, config.length_penalty) == (False, 1.0)
    assert model.generation_config.num_beams == 5  # the model's own is left alone
    assert build_generation_config(model, beams=2, max_new_tokens=4).length_penalty == 2.0
