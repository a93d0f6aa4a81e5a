"""The only place that starts torch's profiler: a process has one, and a second one inside it crashes.

In: its owner's name, and torch's own settings. Out: the profiler, or `ProfilerBusy` with the name of the other owner.

    capture of `seqfit profile`      wait   warm-up   record   record
    a peak measurement inside it            here, torch 2.13 reports that no profiler is enabled, and starting one is a
                                            segmentation fault two steps later, when the outer one stops

So torch's report is not enough. Our own profilers are tracked here, and one that the user's program has around
`seqfit.train(...)` is found among Python's objects, which takes 65 ms; this happens only before a profiler starts.

`measure_peak` finds the peak of allocated bytes of one step on a CPU in torch's record of its allocations; not of the
first step, in which libraries initialise themselves.

    there before the step     +8 (an activation)   +4   -8   +6
    100                       108                  112  104  110          peak 112
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from seqfit.data import GlobalBatch
from seqfit.step.step import TrainStep

_lock = threading.Lock()
_owner: str | None = None


class ProfilerBusy(Exception):
    """torch's profiler is in use."""


@contextmanager
def torch_profiler(owner: str, **settings: Any) -> Iterator[profile]:
    """torch.profiler.profile(**settings), unless one is in use; `owner` is named in the error of a second one."""
    global _owner
    with _lock:
        holder = find_profiler_owner()
        if holder is not None:
            raise ProfilerBusy(f"{owner} needs torch's profiler, which {holder} uses: a process has only one")
        _owner = owner
    try:
        with profile(**settings) as profiler:
            yield profiler
    finally:
        _owner = None


def find_profiler_owner() -> str | None:
    """Who uses torch's profiler, also where it is only about to record; None where it is free."""
    if _owner is not None:
        return _owner
    if torch._C._autograd._profiler_enabled() or any(map(_is_active, gc.get_referrers(profile))):
        return "the program that called seqfit"
    return None


def _is_active(found: object) -> bool:
    """A profiler with a schedule, anywhere between its start and its stop."""
    return isinstance(found, profile) and found.step_rec_fn is not None


_RECORDED: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "profile_memory": True}


class NothingRecorded(Exception):
    """A step without an allocation: torch was built without this record."""


@dataclass
class MeasuredPeak:
    """Persistent tensors and the most allocated on top of them; known after the step."""

    bytes: int = 0


def measure_peak(step: TrainStep, batch: GlobalBatch) -> AbstractContextManager[MeasuredPeak]:
    return measure_allocated(_lasting(step, batch))


@contextmanager
def measure_allocated(lasting_tensors: Iterable[torch.Tensor]) -> Iterator[MeasuredPeak]:
    """Of whatever runs inside, with the tensors that exist before and after it."""
    lasting = sum({tensor.untyped_storage()._cdata: _bytes(tensor) for tensor in lasting_tensors}.values())
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
