from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.generation import queues
from seqfit.generation.generator import Generator
from seqfit.generation.texts import generate_sources, generate_split
from seqfit.model.load import load_model, load_tokenizer
from seqfit.model.loss import LossModel, LossRule
from seqfit.recipe.schema import ModelRecipe
from seqfit.step.precision import Precision
from seqfit.tasks import ClassifierHead

ROWS = 30
ALL = np.arange(ROWS)
FP32 = Precision("fp32", torch.device("cpu"), "a test")


@pytest.fixture
def build(tiny_model: Callable[[str], Path]) -> Callable[..., Generator]:
    def build_generator(name: str, *, beams: int = 1, batch_tokens: int = 64) -> Generator:
        kind: Any = "classifier" if name == "bert" else "text-to-text"
        head = ClassifierHead(("yes", "no", "maybe")) if name == "bert" else None
        recipe = ModelRecipe(path=str(tiny_model(name)), kind=kind)
        model = load_model(recipe, head)
        generator = torch.Generator().manual_seed(5)
        for parameter in model.parameters():
            parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.4)
        if head is None:
            model.lm_head.weight = torch.nn.Parameter(torch.randn(model.lm_head.weight.shape, generator=generator))
        return Generator(model, load_tokenizer(recipe), FP32, beams, 9, batch_tokens, head)

    return build_generator


@pytest.fixture
def sources() -> list[list[int]]:
    generator = np.random.default_rng(1)
    return [generator.integers(3, 100, length).tolist() for length in generator.integers(1, 20, ROWS)]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each search had."""
    rows: list[int] = []
    search = queues.search_texts

    def count(model: Any, sources: Any, *settings: Any, **more: Any) -> Any:
        rows.append(len(sources.lengths))
        return search(model, sources, *settings, **more)

    monkeypatch.setattr(queues, "search_texts", count)
    return rows


def ask_stock(generator: Generator, source: list[int], beams: int = 1) -> list[int]:
    """Of one row alone, without a cache; the start token left out."""
    settings: dict[str, Any] = {"num_beams": beams, "do_sample": False, "max_new_tokens": 9, "use_cache": False}
    ids: list[int] = generator.model.eval().generate(input_ids=torch.tensor([source]), **settings)[0, 1:].tolist()
    return ids


def texts_of(generator: Generator, answers: list[list[int]]) -> list[str]:
    return [generator.tokenizer.decode(ids, skip_special_tokens=True) for ids in answers]


@pytest.mark.parametrize(("name", "beams"), [("t5", 1), ("mt5", 1), ("umt5", 1), ("bart", 1), ("t5", 3)])
def test_answers_and_loss_are_those_of_rows_answered_alone(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]], name: str, beams: int
) -> None:
    generator = build(name, beams=beams)
    targets = [[4 + row, 5, 1][row % 2 :] for row in range(ROWS)]
    start = generator.padding.decoder_start_id
    expected = texts_of(generator, [ask_stock(generator, source, beams) for source in sources])
    with torch.inference_mode():
        losses = [
            LossModel(generator.model, LossRule(chunked=False))(
                *(torch.tensor([ids]) for ids in (source, target, [start, *target[:-1]], [1] * len(source))),
            )
            for source, target in zip(sources, targets, strict=True)
        ]
    found = generate_split(generator, make_split(sources, targets), ALL)
    assert found.texts == expected
    assert len(set(found.texts)) >= 8
    assert found.loss == pytest.approx(float(sum(losses)) / sum(map(len, targets)), rel=1e-5)
    assert generate_sources(generator, [np.array(source) for source in sources]) == expected


def test_a_row_whose_target_the_model_would_write_is_not_searched_for(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]], searched: list[int]
) -> None:
    generator = build("t5")
    generator.model.generation_config.eos_token_id = list(range(1, 100, 6))
    written = [ask_stock(generator, source) for source in sources]
    ended = [row for row, ids in enumerate(written) if ids[-1] % 6 == 1]
    targets = [ids if row in ended[::2] else [3, *ids] for row, ids in enumerate(written)]
    assert generate_split(generator, make_split(sources, targets), ALL).texts == texts_of(generator, written)
    assert sum(searched) == ROWS - len(ended[::2]) < ROWS


@pytest.mark.parametrize(
    ("rows", "cache_bytes", "batches"), [(7, 2**30, [7, 7, 7, 7, 2]), (128, 1, [1] * ROWS), (128, 2**30, [ROWS])]
)
def test_rows_wait_for_each_other_up_to_a_limit(
    build: Callable[..., Generator],
    make_split: Any,
    sources: list[list[int]],
    searched: list[int],
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    cache_bytes: int,
    batches: list[int],
) -> None:
    generator = build("t5", batch_tokens=1)  # a piece a row
    split = make_split(sources, [[5, 1]] * ROWS)
    expected = generate_split(generator, split, ALL).texts
    searched.clear()
    monkeypatch.setattr(queues, "DECODED_CACHE_BYTES", cache_bytes)
    assert generate_split(replace(generator, decoded_rows=rows), split, ALL).texts == expected
    assert searched == batches


def test_texts_come_in_the_order_of_the_requested_rows(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]]
) -> None:
    generator, split = build("t5"), make_split(sources, [[5, 1]] * ROWS)
    texts = generate_split(generator, split, ALL).texts
    asked = np.array([7, 2, 7, 29, 0])
    assert generate_split(generator, split, asked).texts == [texts[row] for row in asked]


def test_forced_answers_are_as_long_as_their_targets(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = replace(build("t5"), force_lengths=True)
    targets = [[5] * (row % 8) + [1] for row in range(ROWS)]
    written: list[list[int]] = []
    monkeypatch.setattr(
        type(generator.tokenizer),
        "batch_decode",
        lambda _self, ids, **_settings: written.extend(ids.tolist()) or [str(row) for row in ids.tolist()],
    )
    generate_split(generator, make_split(sources, targets), ALL)
    assert sorted(ids.index(1) for ids in written) == sorted(map(len, targets))


def test_a_classifiers_texts_are_its_labels(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]]
) -> None:
    generator = build("bert")
    found = generate_split(generator, make_split(sources, labels=[row % 3 for row in range(ROWS)]), ALL)
    with torch.inference_mode():
        best = [int(generator.model.eval()(input_ids=torch.tensor([source])).logits.argmax()) for source in sources]
    assert found.texts == [["yes", "no", "maybe"][index] for index in best]
    assert found.loss is not None
    assert generate_sources(generator, [np.array(source) for source in sources]) == found.texts
    assert generator.fallback is None


def test_the_reason_for_transformers_generate_is_reported(build: Callable[..., Generator]) -> None:
    assert build("t5").fallback is None
    assert build("t5", beams=3).fallback is None
    generator = build("bart")
    generator.model.generation_config.encoder_no_repeat_ngram_size = 3
    assert "encoder_no_repeat_ngram_size" in str(generator.fallback)


def test_settings_without_a_loop_of_ours_are_honoured(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]]
) -> None:
    generator, split = build("t5"), make_split(sources, [[5, 1]] * ROWS)
    plain = generate_split(generator, split, ALL).texts
    banned = sorted({int(word[1:]) for text in plain for word in text.split()})[:20]
    generator.model.generation_config.suppress_tokens = banned
    texts = generate_split(generator, split, ALL).texts
    assert not {f"w{token}" for token in banned} & {word for text in texts for word in text.split()}
    assert texts == texts_of(generator, [ask_stock(generator, source) for source in sources])


def test_progress_counts_answered_rows_and_ends_with_all_of_them(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]]
) -> None:
    seen: list[tuple[int, int]] = []
    generator = replace(build("t5", batch_tokens=40), decoded_rows=8)
    generate_split(generator, make_split(sources, [[5, 1]] * ROWS), ALL, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (ROWS, ROWS)
    assert {done for done, _ in seen} > {0, ROWS}


def test_a_model_in_training_is_put_back_into_it(
    build: Callable[..., Generator], make_split: Any, sources: list[list[int]]
) -> None:
    generator = build("t5")
    generator.model.train()
    generate_split(generator, make_split(sources, [[5, 1]] * ROWS), ALL[:3])
    assert generator.model.training
    assert not torch.is_inference_mode_enabled()
