"""The real step: what a plan predicts from fake tensors, measured on this machine's CPU.

In: a `StepSpec` and the micro-batches of a step, as a `FakeStep` takes them. Out: the peak of allocated bytes of a real
step, from torch's own record of what its CPU allocator allocates and frees:

    live before the step     +8 (an activation)   +4   -8   +6
    100                      108                  112  104  110          peak 112

Tokens are random, and padded batches have real padding, because masks of ones take another path through transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from seqfit.data import GlobalBatch, MicroBatch, Padding
from seqfit.model import ModelConfig, choose_weights
from seqfit.parallel import BuiltStep, build_step
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.memory import measure_tape
from seqfit.planning.shape import Shape, join_micro_batches
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.step import Precision, TrainStep, measure_peak
from seqfit.strategy import Strategy
from seqfit.tasks import Label

_FIRST_TOKEN, _LAST_TOKEN = 3, 99  # ids that every vocabulary has, after padding and end
_PADDING = Padding(pad_id=0, decoder_start_id=0)
_SOURCES, _TARGETS = (180, 163, 90, 121, 44, 178), (20, 3, 17, 9, 11, 5)  # of the step whose peaks are compared


def compare_peaks(
    model_config: ModelConfig, strategy: Strategy, precision: str, device: torch.device
) -> tuple[int, int]:
    """Peak bytes of one step of a small model with random weights, predicted and measured."""
    rules = rules_for("cpu" if device.type == "cpu" else "gpu")
    spec = StepSpec(model_config, ModelRecipe(path="selftest"), TrainRecipe(), strategy, precision, rules)
    shape = Shape(_SOURCES, _TARGETS, packed=strategy.batching == "packed")
    tape = FakeStep(spec).trace([shape])
    step, batch = build_real_step(spec, device).step, draw_batch([shape])
    step.run(batch)
    if device.type == "cpu":
        return tape.peak_bytes, measure_peak_bytes(step, batch)
    torch.cuda.reset_peak_memory_stats(device)
    step.run(batch)
    torch.cuda.synchronize(device)
    return measure_tape(tape, rules).allocated_bytes, torch.cuda.max_memory_allocated(device)


def build_real_step(spec: StepSpec, device: torch.device = torch.device("cpu")) -> BuiltStep:  # noqa: B008, a value
    """With random weights."""
    model_config = replace(spec.model_config, config=copy.deepcopy(spec.model_config.config))  # building writes to it
    model = model_config.build(spec.model.model_copy(update={"weights": "random"}))
    choose_weights(model, spec.model, spec.strategy)
    precision = Precision(spec.precision, device, "as planned")
    return build_step(model.to(device).train(), spec.train, spec.strategy, precision)


def draw_batch(shapes: Sequence[Shape], label: Label = 0) -> GlobalBatch:
    """Random tokens of these lengths, packed or padded by the code that training uses; `label` is a classifier's."""
    return join_micro_batches([_draw_micro_batch(shape, label) for shape in shapes])


def measure_peak_bytes(step: TrainStep, batch: GlobalBatch) -> int:
    """Allocated bytes at the peak of one step, after an earlier one, which makes the optimizer's state."""
    with measure_peak(step, batch) as peak:
        step.run(batch)
    return peak.bytes


def _draw_micro_batch(shape: Shape, label: Label) -> MicroBatch:
    longest = max(shape.sources), max(shape.targets or (0,))
    return MicroBatch.collate(
        _draw(shape.sources),
        _draw(shape.targets or ()),
        _PADDING,
        labels=[label] * shape.examples if shape.targets is None else None,
        shape=None if shape.packed else longest,
    )


def _draw(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    random = np.random.default_rng(0)
    return [random.integers(_FIRST_TOKEN, _LAST_TOKEN, length) for length in lengths]
