"""Our beam search and the conditions on tokens, against transformers' own on the same tiny models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from seqfit.generation import search
from seqfit.generation.beams import find_highest, find_slots
from seqfit.generation.decode import encode, read_targets
from seqfit.generation.rule import SearchRule, explain_why_not_own
from seqfit.generation.search import FoundTexts
from seqfit.generation.searches import search_texts
from seqfit.model.checkpoint import build_generation_config
from seqfit.model.load import load_model
from seqfit.recipe.schema import ModelRecipe

ROWS, STEPS = 10, 14


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    """Random models whose texts end early or late: one token in twelve is an end."""

    def build(name: str) -> Any:
        generator = torch.Generator().manual_seed(4)
        if name == "marian":
            shape = {"vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
            shape |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
            shape |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
            torch.manual_seed(1)
            config = MarianConfig(**shape, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
            model = MarianMTModel(config).eval()
            model.final_logits_bias.normal_(generator=generator)
            model.generation_config.update(bad_words_ids=[[0]], forced_eos_token_id=1)
        else:
            model = load_model(ModelRecipe(path=str(tiny_model(name)))).eval()
            model.generation_config.update(eos_token_id=list(range(1, 100, 9)))
        for parameter_name, parameter in model.named_parameters():
            strength = 2.0 if "embed_positions" in parameter_name else 0.4
            parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=strength)
        if name != "marian":
            model.lm_head.weight = torch.nn.Parameter(torch.randn(model.lm_head.weight.shape, generator=generator))
        return model

    return build


def make_sources() -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(0)
    lengths = [3 + 2 * (row % 6) for row in range(ROWS)]
    ids = torch.randint(3, 100, (ROWS, max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask, lengths


@torch.inference_mode()
def find_ours(model: Any, settings: dict[str, Any], beams: int = 3) -> FoundTexts:
    ids, mask, lengths = make_sources()
    config = build_generation_config(model, beams, STEPS)
    config.update(**settings)
    assert explain_why_not_own(model, config) is None
    rule = SearchRule.of(config)
    start = torch.full((ROWS, 1), rule.start_id)
    sources = read_targets(model, encode(model, ids, mask), mask, lengths, start)[1]
    return search_texts(model, sources, rule, scored=True)


@torch.inference_mode()
def find_theirs(model: Any, settings: dict[str, Any], beams: int = 3) -> Any:
    ids, mask, _ = make_sources()
    given = {"num_beams": beams, "do_sample": False, "max_new_tokens": STEPS, **settings}
    return model.generate(input_ids=ids, attention_mask=mask, return_dict_in_generate=True, output_scores=True, **given)


def strip(ids: torch.Tensor, lengths: torch.Tensor) -> list[list[int]]:
    return [row[: length + 1] for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]


SETTINGS: list[dict[str, Any]] = [
    {"num_return_sequences": 3},
    {"length_penalty": 2.0, "num_return_sequences": 2},
    {"length_penalty": 0.0, "early_stopping": "never"},
    {"length_penalty": 1.5, "early_stopping": "never"},
    {"length_penalty": -0.5},
    {"early_stopping": True, "num_return_sequences": 3},
    {"no_repeat_ngram_size": 2, "min_new_tokens": 5},
    {"repetition_penalty": 1.4, "min_length": 4},
    {"forced_bos_token_id": 7, "forced_eos_token_id": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(settings))
@pytest.mark.parametrize("name", ["t5", "mt5", "bart", "marian"])
def test_beams_find_the_texts_and_scores_of_generate(
    load: Callable[[str], Any], name: str, settings: dict[str, Any]
) -> None:
    model = load(name)
    ours, theirs = find_ours(model, settings), find_theirs(model, settings)
    assert ours.scores_BN is not None
    assert ours.scores_BN.flatten().tolist() == pytest.approx(theirs.sequences_scores.tolist(), rel=1e-5, abs=1e-5)
    lengths = ours.lengths_BN.flatten()
    assert strip(ours.ids_BNT.flatten(0, 1), lengths) == strip(theirs.sequences, lengths)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_row_finds_the_same_beams_by_itself(load: Callable[[str], Any], name: str) -> None:
    """Rows leave at different times and move into the places of others."""
    model = load(name)
    settings = {"num_return_sequences": 2, "length_penalty": 0.0}
    together = find_ours(model, settings)
    assert len(set(together.lengths_BN[:, 0].tolist())) >= 3
    ids, mask, _ = make_sources()
    for row in range(ROWS):
        alone = model.generate(
            input_ids=ids[row : row + 1, : mask[row].sum()], num_beams=3, max_new_tokens=STEPS, **settings
        )
        assert strip(together.ids_BNT[row], together.lengths_BN[row]) == strip(alone, together.lengths_BN[row])


def test_late_looks_find_the_same_beams(load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("t5")
    expected = find_ours(model, {"early_stopping": True})
    monkeypatch.setattr(search, "LOOK_EVERY", {})
    late = find_ours(model, {"early_stopping": True})
    assert torch.equal(late.ids_BNT, expected.ids_BNT)
    torch.testing.assert_close(late.scores_BN, expected.scores_BN, rtol=1e-5, atol=1e-5)  # by how a row is padded


@pytest.mark.parametrize(
    "settings", [{"num_return_sequences": 1}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.4}]
)
def test_conditions_on_a_greedy_search_are_those_of_generate(
    load: Callable[[str], Any], settings: dict[str, Any]
) -> None:
    model = load("t5")
    settings = settings | {"min_new_tokens": 3}
    ours, theirs = find_ours(model, settings, beams=1), find_theirs(model, settings, beams=1)
    lengths = ours.lengths_BN[:, 0]
    assert strip(ours.best_BT, lengths) == strip(theirs.sequences, lengths)


def test_log_probabilities_of_a_greedy_text_are_those_of_its_tokens(load: Callable[[str], Any]) -> None:
    model = load("bart")
    ours, theirs = find_ours(model, {}, beams=1), find_theirs(model, {}, beams=1)
    steps = model.compute_transition_scores(theirs.sequences, theirs.scores, normalize_logits=True)
    counted = torch.arange(steps.shape[1]) < ours.lengths_BN
    assert ours.log_probs_BN is not None
    assert ours.log_probs_BN[:, 0].tolist() == pytest.approx((steps.masked_fill(~counted, 0)).sum(1).tolist(), rel=1e-5)


def test_places_are_those_of_the_parents_and_the_free_ones() -> None:
    parents = torch.tensor([[0, 2, 0, 1], [3, 3, 3, 3], [0, 1, 2, 3]])
    assert find_slots(parents).tolist() == [[0, 2, 3, 1], [3, 0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("total", [128 * 64, 128 * 64 + 17, 100])
def test_the_best_by_blocks_are_those_of_topk(total: int) -> None:
    scores = torch.randn(5, total, generator=torch.Generator().manual_seed(0))
    scores[0, -3:] = 9.0
    values, places = find_highest(scores, 8)
    assert torch.equal(values, scores.topk(8).values)
    assert torch.equal(scores.gather(1, places), values)
