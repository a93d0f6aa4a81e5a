"""Micro-batches around every threshold that changes the path through the model: each is predicted, and rightly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from transformers import AutoModelForSeq2SeqLM, T5Config

from seqfit.kernels.cross_entropy import CHUNK_BYTES, LEAST_CHUNK_ROWS
from seqfit.kernels.layout import BLOCK, WHOLE_SEGMENT_TOKENS
from seqfit.model.load import ModelConfig
from seqfit.parallel.build import SHORT_ON_CPU, SHORT_ON_GPU
from seqfit.planning.fake_step import FakeStep, StepSpec, build_real_step, measure_peak_bytes
from seqfit.planning.shape import BLOCKS, KERNEL, Paths, Shape, choose_traced, count_loss_rows, draw_batch, find_regime
from seqfit.planning.shape import WHOLE as WHOLE_SEGMENTS
from seqfit.planning.step_model import StepModel, model_step
from seqfit.planning.template import DifferentPaths
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

WORDS = 40_000  # so that a few hundred target tokens are several chunks of logits
CONFIG = T5Config(
    vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, decoder_start_token_id=0, dropout_rate=0.1
)
SUBJECT = StepSpec(
    ModelConfig(CONFIG, {}, AutoModelForSeq2SeqLM), ModelRecipe(path="x"), TrainRecipe(), Strategy(), precision="fp32"
)
ON_CPU = Paths(SHORT_ON_CPU, WORDS)
THRESHOLDS = (SHORT_ON_CPU, BLOCK, WHOLE_SEGMENT_TOKENS, SHORT_ON_GPU, LEAST_CHUNK_ROWS)
SEEN_TO_FAIL = [
    Shape((60, 70, 80), (22, 28, 34), packed=True),
    Shape((40, 40, 40, 40), (30, 31, 33, 34), packed=True),
    Shape((33, 20, 48, 21), (25, 40, 31, 33), packed=True),
    Shape((513, 766, 600), (8, 49, 20), packed=True),
]
Mix = list[list[Shape]]


@pytest.fixture(scope="module")
def fake() -> FakeStep:
    return FakeStep(SUBJECT)


@pytest.fixture(scope="module")
def model(fake: FakeStep) -> StepModel:
    """One for all mixes: a regime is traced for the first that has it."""
    return model_step(fake, [[SEEN_TO_FAIL[0]]])


def draw_mixes(count: int) -> list[Mix]:
    """Steps of one to three micro-batches, whose lengths lie on both sides of a threshold."""
    draw = random.Random(17)

    def lengths(examples: int) -> tuple[int, ...]:
        around = draw.choice((*THRESHOLDS, 3, 100))
        reach = draw.choice((1, 2, around // 4 + 1, around))
        return tuple(draw.randint(max(1, around - reach), around + reach) for _ in range(examples))

    mixes = []
    for _ in range(count):
        micro_batches = [draw.randint(1, 12) for _ in range(draw.randint(1, 3))]
        mixes.append([[Shape(lengths(examples), lengths(examples), packed=True) for examples in micro_batches]])
    return mixes


def test_a_regime_changes_where_the_model_changes_its_path() -> None:
    def path(source: int, target: int, examples: int = 2) -> tuple[str | None, ...]:
        regime = find_regime(Shape((source,) * examples, (target,) * examples, packed=True), ON_CPU)
        return regime.encoder, regime.decoder, regime.cross

    assert path(SHORT_ON_CPU, SHORT_ON_CPU) == (KERNEL, KERNEL, KERNEL)
    assert path(SHORT_ON_CPU + 1, SHORT_ON_CPU) == (WHOLE_SEGMENTS, KERNEL, WHOLE_SEGMENTS)
    assert path(SHORT_ON_CPU, SHORT_ON_CPU + 1) == (KERNEL, WHOLE_SEGMENTS, WHOLE_SEGMENTS)
    assert path(WHOLE_SEGMENT_TOKENS, WHOLE_SEGMENT_TOKENS) == (WHOLE_SEGMENTS,) * 3
    assert path(WHOLE_SEGMENT_TOKENS + 1, WHOLE_SEGMENT_TOKENS) == (BLOCKS, WHOLE_SEGMENTS, WHOLE_SEGMENTS)
    assert path(8, WHOLE_SEGMENT_TOKENS + 1) == (KERNEL, BLOCKS, BLOCKS)
    single = Shape((8,), (8,), packed=True)
    assert find_regime(single, ON_CPU) != find_regime(Shape((8, 8), (8, 8), packed=True), ON_CPU)


def test_rows_of_the_loss_are_those_of_a_chunk() -> None:
    in_one = CHUNK_BYTES // (4 * WORDS)
    assert count_loss_rows(Shape((9,), (in_one,), packed=True), ON_CPU) == in_one
    assert count_loss_rows(Shape((9, 9), (in_one, in_one), packed=True), ON_CPU) == in_one
    assert count_loss_rows(Shape((9, 9), (3, 5), packed=False), ON_CPU) == 10
    assert count_loss_rows(Shape((9,), None, packed=True), ON_CPU) == 0


@pytest.mark.parametrize("mix", draw_mixes(60))
def test_what_is_traced_is_of_the_same_regime(mix: Mix) -> None:
    for shape in mix[0]:
        traced = choose_traced(shape, ON_CPU)
        assert {find_regime(other, ON_CPU) for other in traced} == {find_regime(shape, ON_CPU)}
        assert len(traced) == 2
        assert max(other.examples for other in traced) <= 3


def test_200_mixes_around_every_threshold_are_all_predicted(model: StepModel) -> None:
    mixes = [[[shape]] for shape in SEEN_TO_FAIL] + draw_mixes(200 - len(SEEN_TO_FAIL))
    weights = model.gradient_bytes * 3  # and AdamW's two moments
    for steps in mixes:
        shape, single = model.largest(steps)
        peak = model.peak_bytes(shape, single=single)
        assert peak > weights
        assert sum(model.parts(shape, single=single).values()) == pytest.approx(peak, rel=0.01)
    assert len(model._models) > 6


@pytest.mark.parametrize(
    "shape",
    [
        *SEEN_TO_FAIL,
        Shape((20, 31, 12, 9) * 3, (5, 30, 8, 2) * 3, packed=True),  # torch's kernel everywhere
        Shape((200, 270, 90) * 3, (60, 99, 80) * 3, packed=True),  # several chunks of logits
        Shape((90, 30) * 8, (3, 4) * 8, packed=True),
    ],
)
def test_a_prediction_is_what_a_real_step_takes(model: StepModel, shape: Shape) -> None:
    """Within 4% of the bytes that torch's allocator hands out, by polynomials of two other shapes."""
    step, batch = build_real_step(SUBJECT).step, draw_batch([shape])
    step.run(batch)  # the first one makes the optimizer's state
    assert model.peak_bytes(shape, single=True) == pytest.approx(measure_peak_bytes(step, batch), rel=0.04)


@pytest.mark.parametrize("packed", [True, False])
def test_two_traces_differ_in_all_that_sizes_depend_on(packed: bool) -> None:
    """Two examples of 9 tokens and three of 6 would not: what grows with the tokens would seem to be the same."""
    for source, target in product(range(2, 40), range(2, 40)):
        small, other = choose_traced(Shape((source,) * 8, (target,) * 8, packed), ON_CPU)
        few, many = (
            (each.examples, max(each.sources), max(each.targets or ()), sum(each.sources), sum(each.targets or ()))
            for each in (small, other)
        )
        factors = {round(after / before, 9) for before, after in zip(few, many, strict=True)}
        assert len(factors | {1.0}) == 6, (small, other)


@pytest.mark.parametrize(
    "shape",
    [
        Shape((9, 4, 7, 9, 3, 5, 9, 8) * 2, (2,) * 16, packed=True),  # a label and its end: one token has shortcuts
        Shape((9,) * 16, (3,) * 16, packed=True),
        Shape((9, 4, 7, 9, 3, 5, 9, 8) * 2, (6,) * 16, packed=False),
    ],
)
def test_the_peak_of_short_texts_is_that_of_their_own_trace(shape: Shape) -> None:
    """Within 1%, with so few words that activations are most of it."""
    strategy = Strategy(batching="packed" if shape.packed else "padded")
    small = ModelConfig(T5Config(**CONFIG.to_dict() | {"vocab_size": 100}), {}, AutoModelForSeq2SeqLM)
    fake = FakeStep(replace(SUBJECT, model_config=small, strategy=strategy))
    model = StepModel(fake, shape)
    assert not model._single, "its template holds for the whole regime"
    assert model.peak_bytes(shape, single=False) == pytest.approx(fake.trace([shape, shape]).peak_bytes, rel=0.01)


def test_a_regime_that_no_template_fits_is_traced_at_the_shape_itself(
    fake: FakeStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.planning import step_model

    fit = step_model.fit_template

    def refuse(shapes: Sequence[Shape], *rest: object) -> object:
        if len(shapes) > 1:
            raise DifferentPaths("as if")
        return fit(shapes, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(step_model, "fit_template", refuse)
    shapes = [Shape((6, 5), (4, 3), packed=True), Shape((9, 5, 2), (4, 3, 1), packed=True)]
    model = model_step(fake, [shapes])
    largest, _ = model.largest([shapes])
    assert largest == shapes[1]
    assert model.peak_bytes(largest, single=False) == fake.trace([largest, largest]).peak_bytes
