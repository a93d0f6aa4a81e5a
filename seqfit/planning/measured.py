"""The same step for real: what a plan predicts from fake tensors, measured on this machine's CPU.

In: a `Subject` and the micro-batches of a step, as a `FakeStep` takes them. Out: the peak of allocated bytes of a real
step, from torch's own record of what its CPU allocator hands out and gets back:

    there before the step     +8 (an activation)   +4   -8   +6
    100                       108                  112  104  110          peak 112

Tokens are random, and padded batches have real padding, for masks of ones take another way through transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity

from seqfit.data.loader import GlobalBatch
from seqfit.data.micro_batch import MicroBatch, Padding, TokenIds, collate
from seqfit.model.load import build_model
from seqfit.planning.fake_step import TracedModel
from seqfit.planning.shape import Shape, join_micro_batches
from seqfit.step.build import BuiltStep, build_step, choose_weights
from seqfit.step.precision import Precision
from seqfit.step.step import StepOutcome, TrainStep
from seqfit.step.torch_profiler import torch_profiler
from seqfit.tasks import Label

_FIRST_WORD, _LAST_WORD = 3, 99  # ids that every vocabulary has, behind padding and end
_PADDING = Padding(pad_id=0, decoder_start_id=0)
_RECORDED: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "profile_memory": True}


class NothingRecorded(Exception):
    """A step without an allocation: torch was built without what tells of them."""


def build_real_step(subject: TracedModel, device: torch.device = torch.device("cpu")) -> BuiltStep:  # noqa: B008, a value
    """With random weights."""
    outline = replace(subject.outline, config=copy.deepcopy(subject.outline.config))  # building writes to it
    model = build_model(subject.model.model_copy(update={"weights": "random"}), outline)
    choose_weights(model, subject.model, subject.strategy)
    precision = Precision(subject.precision, device, "as planned")
    return build_step(model.to(device).train(), subject.train, subject.strategy, precision)


def draw_batch(shapes: Sequence[Shape], label: Label = 0) -> GlobalBatch:
    """Random tokens of these lengths, packed or padded by the code that training uses; `label` is a classifier's."""
    return join_micro_batches([_draw_micro_batch(shape, label) for shape in shapes])


def measure_peak_bytes(step: TrainStep, batch: GlobalBatch) -> int:
    """Allocated bytes at the peak of one step. A step went before: the first one makes the optimizer's state."""
    _, peak_bytes = run_measured(step, batch)
    return peak_bytes


def run_measured(
    step: TrainStep, batch: GlobalBatch, make: Callable[[GlobalBatch], StepOutcome] | None = None
) -> tuple[StepOutcome, int]:
    """One step, and the allocated bytes at its peak: what lasts, and the most that came on top of it.

    `make` makes the step, where somebody wants to know that it was made though it could not be measured.
    """
    before_bytes = sum({tensor.untyped_storage()._cdata: _bytes(tensor) for tensor in _lasting(step, batch)}.values())
    with torch_profiler("the measurement of a step's peak", **_RECORDED) as profiled:
        outcome = (make or step)(batch)
    results: Any = profiled.profiler
    recorded = results.kineto_results.events()
    memory = sorted((event for event in recorded if event.name() == "[memory]"), key=lambda event: event.start_ns())
    if not memory:
        raise NothingRecorded("torch's profiler recorded no allocation")
    return outcome, before_bytes + int(max(accumulate(event.nbytes() for event in memory)))


def _lasting(step: TrainStep, batch: GlobalBatch) -> Iterator[torch.Tensor]:
    """What is there before and after the step."""
    yield from step.model.parameters()
    yield from step.model.buffers()
    for held in (*step.optimizer.state.values(), *map(vars, batch.micro_batches)):
        yield from (value for value in held.values() if isinstance(value, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _draw_micro_batch(shape: Shape, label: Label) -> MicroBatch:
    longest = max(shape.sources), max(shape.targets or (0,))
    return collate(
        _draw(shape.sources),
        _draw(shape.targets or ()),
        _PADDING,
        labels=[label] * shape.examples if shape.targets is None else None,
        shape=None if shape.packed else longest,
    )


def _draw(lengths: Sequence[int]) -> list[TokenIds]:
    random = np.random.default_rng(0)
    return [random.integers(_FIRST_WORD, _LAST_WORD, length) for length in lengths]
