"""Stages as one process can run them: each takes the wire that the one before it gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.data.loader import MicroBatch, Padding
from seqfit.model.families.family import family_of
from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.packing import PackedModel
from seqfit.parallel.execution import Recompute, enable_recompute
from seqfit.parallel.pipeline import LEAST_WIRE_ROWS, StageModel, round_rows
from seqfit.parallel.stages import assign_parts, split_stages
from seqfit.recipe.schema import ModelRecipe

KINDS = ("t5", "mt5", "umt5", "deep-decoder", "bart", "marian")
LENGTHS = (((5, 3), (2, 9)), ((4,), (1,)))  # sources and targets of two micro-batches
Load = Callable[[str], Any]
Change = Callable[[Any], None]


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Load:
    return lambda name: load_model(ModelRecipe(path=str(tiny_model(name)), dropout=0.0)).train()


def make_batches(name: str, batching: str) -> list[MicroBatch]:
    random = np.random.default_rng(0)
    padding = Padding(0, 2 if name in ("bart", "marian") else 0)
    batches = []
    for source_lengths, target_lengths in LENGTHS:
        sources, targets = ([random.integers(3, 100, n) for n in side] for side in (source_lengths, target_lengths))
        shape = None if batching == "packed" else (max(source_lengths), max(target_lengths))
        batches.append(MicroBatch.collate(sources, targets, padding, shape=shape))
    return batches


def build_stages(load: Load, name: str, batching: str, count: int, change: Change | None = None) -> list[StageModel]:
    stages = []
    for number in range(count):
        model = load(name)
        if change is not None:
            change(model)
        packed = PackedModel(model) if batching == "packed" else None
        parts = assign_parts(split_stages([1.0] * 4, count), len(family_of(model).stack_blocks(model.get_encoder())))
        stages.append(StageModel(model, parts[number], LossRule(), packed))
    return stages


def run(stages: Sequence[StageModel], batches: Sequence[MicroBatch]) -> list[torch.Tensor]:
    """The wires of the second stage on, and the loss."""
    for stage in stages:
        stage.begin(batches, sum(batch.target_tokens for batch in batches), nullcontext, None)
    wires: list[torch.Tensor] = []
    for number in range(len(batches)):
        received: tuple[torch.Tensor, ...] = ()
        for stage in stages:
            with stage.running(number):
                received = (stage(*received),)
            wires += received
    return [*wires, stages[-1].loss]


def reference(model: Any, batches: Sequence[MicroBatch]) -> float:
    wrapped = LossModel(model, LossRule())
    losses = [
        wrapped(batch.source_ids, batch.labels, batch.decoder_ids, batch.source_mask, batch.target_tokens)
        for batch in batches
    ]
    return float(sum(losses).detach()) / sum(batch.target_tokens for batch in batches)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_the_loss_after_the_last_stage_is_that_of_the_whole_model(name: str, batching: str, load: Load) -> None:
    *_, loss = run(build_stages(load, name, batching, 3), make_batches(name, batching))
    assert float(loss) == pytest.approx(reference(load(name), make_batches(name, "padded")), rel=1e-6)


@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_embeddings_that_the_stacks_scale_are_scaled(batching: str, load: Load) -> None:
    """Published Marian models have it."""

    def scale(model: Any) -> None:
        model.base_model.encoder.embed_scale = model.base_model.decoder.embed_scale = 30.0

    whole = load("marian")
    scale(whole)
    *_, loss = run(build_stages(load, "marian", batching, 4, scale), make_batches("marian", batching))
    assert float(loss) == pytest.approx(reference(whole, make_batches("marian", "padded")), rel=1e-6)
    assert float(loss) != pytest.approx(reference(load("marian"), make_batches("marian", "padded")), rel=1e-4)


def test_all_wires_have_one_size_and_their_rest_is_empty(load: Load) -> None:
    *wires, _ = run(build_stages(load, "t5", "packed", 2), make_batches("t5", "packed"))
    assert [tuple(wire.shape) for wire in (wires[0], wires[2])] == [(LEAST_WIRE_ROWS, 32)] * 2
    for wire, lengths in zip((wires[0], wires[2]), LENGTHS, strict=True):
        rows = sum(map(sum, lengths))
        assert bool(wire[:rows].any(1).all())
        assert not bool(wire[rows:].any())


def test_a_frozen_stage_sends_states_that_take_a_gradient(load: Load) -> None:
    def freeze(model: Any) -> None:
        model.requires_grad_(False)
        family_of(model).stack_blocks(model.base_model.decoder).requires_grad_(True)

    wire, loss, *_ = run(build_stages(load, "mt5", "packed", 2, freeze), make_batches("mt5", "packed"))
    loss.backward()
    assert wire.is_leaf
    assert wire.grad is not None


def test_states_are_sent_in_the_dtype_of_the_weights_under_autocast(load: Load) -> None:
    stages, batches = build_stages(load, "bart", "packed", 2), make_batches("bart", "packed")
    stages[0].begin(batches, 1, lambda: torch.autocast("cpu", torch.bfloat16), None)
    with stages[0].running(0):
        assert stages[0]().dtype == torch.float32


def test_a_loss_is_scaled_only_for_its_backward(load: Load) -> None:
    (stage,) = build_stages(load, "t5", "packed", 1)
    losses = []
    for scale in (None, lambda loss: loss * 8):
        stage.begin(make_batches("t5", "packed"), 1, nullcontext, scale)
        with stage.running(0):
            losses.append((float(stage().detach()), float(stage.loss)))
    (plain, reported), (scaled, reported_again) = losses
    assert plain == reported == reported_again
    assert scaled == 8 * plain


def test_a_recomputed_block_gets_the_layout_of_its_own_micro_batch(load: Load) -> None:
    """Two forwards, then two backwards, as in 1F1B. UMT5 asks for the layout in every block."""

    def compute(recompute: Recompute, order: Sequence[int]) -> list[torch.Tensor]:
        (stage,) = build_stages(load, "umt5", "packed", 1)
        enable_recompute(stage.model, recompute)
        stage.begin(make_batches("umt5", "packed"), 1, nullcontext, None)
        losses = []
        for number in (0, 1):
            with stage.running(number):
                losses.append(stage())
        for loss, number in zip(losses, order, strict=True):
            with stage.running(number):
                loss.backward()
        return [weight.grad for weight in stage.parameters() if weight.grad is not None]

    stored, again = compute("none", (0, 1)), compute("blocks", (0, 1))
    assert len(stored) == len(again) > 20
    assert all(torch.equal(one, other) for one, other in zip(stored, again, strict=True))
    with pytest.raises(AssertionError):  # the biases of one micro-batch do not fit the segments of the other
        compute("blocks", (1, 0))


def test_wires_have_few_sizes_and_few_empty_rows() -> None:
    sizes = {round_rows(rows) for rows in range(1, 8193)}
    assert len(sizes) <= 45
    assert all(rows <= round_rows(rows) <= max(rows * 9 / 8, rows + LEAST_WIRE_ROWS - 1) for rows in range(1, 8193))


@pytest.mark.parametrize(("rows", "size"), [(1, 64), (100, 128), (1000, 1024), (1025, 1152), (6144, 6144)])
def test_sizes_are_sixteenths_of_the_next_power_of_two(rows: int, size: int) -> None:
    assert round_rows(rows) == size


@pytest.mark.parametrize("name", ["bart", "marian"])
def test_stages_that_move_to_a_device_take_the_bias_of_the_logits_along(name: str, load: Load) -> None:
    def bias(model: Any) -> None:
        model.final_logits_bias.copy_(torch.linspace(-2, 2, model.final_logits_bias.shape[1]))

    batches = make_batches(name, "packed")
    stages = build_stages(load, name, "packed", 2)  # the bias is still zero
    for stage in stages:
        stage.to(torch.float64)
        bias(stage.model)
    whole = load(name)
    bias(whole)
    *_, loss = run(stages, batches)
    assert float(loss) == pytest.approx(reference(whole.double(), make_batches(name, "padded")), rel=1e-9)
