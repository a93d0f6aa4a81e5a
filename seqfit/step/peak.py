"""The peak of allocated bytes of one step on a CPU, from torch's record of its allocations.

    there before the step     +8 (an activation)   +4   -8   +6
    100                       108                  112  104  110          peak 112

Not for the first step, in which libraries initialise themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from seqfit.data import GlobalBatch
from seqfit.step.step import TrainStep
from seqfit.step.torch_profiler import torch_profiler

_RECORDED: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "profile_memory": True}


class NothingRecorded(Exception):
    """A step without an allocation: torch was built without this record."""


@dataclass
class MeasuredPeak:
    """Persistent tensors and the most allocated on top of them; known after the step."""

    bytes: int = 0


@contextmanager
def measure_peak(step: TrainStep, batch: GlobalBatch) -> Iterator[MeasuredPeak]:
    """Around one step with this batch."""
    lasting = sum({tensor.untyped_storage()._cdata: _bytes(tensor) for tensor in _lasting(step, batch)}.values())
    measured = MeasuredPeak()
    with torch_profiler("the measurement of a step's peak", **_RECORDED) as profiled:
        yield measured
    results: Any = profiled.profiler
    recorded = results.kineto_results.events()
    memory = sorted((event for event in recorded if event.name() == "[memory]"), key=lambda event: event.start_ns())
    if not memory:
        raise NothingRecorded("torch's profiler recorded no allocation")
    measured.bytes = lasting + int(max(accumulate(event.nbytes() for event in memory)))


def _lasting(step: TrainStep, batch: GlobalBatch) -> Iterator[torch.Tensor]:
    """What exists before and after the step."""
    yield from step.model.parameters()
    yield from step.model.buffers()
    for held in (*step.optimizer.state.values(), *map(vars, batch.micro_batches)):
        yield from (value for value in held.values() if isinstance(value, torch.Tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()
