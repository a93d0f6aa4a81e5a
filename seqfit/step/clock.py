"""The time of steps by phases, measured without a device synchronisation.

In: phases as they happen. Out: seconds of each, summed over a window of steps.

    with clock.phase("forward"):        # on a CPU: the clock is read twice
        loss = ...                      # on a GPU: two events in its queue, which the device reaches later
    window = clock.take()               # {"forward": 0.8, ...} as far as the device has got
    ...                                 # the next step is launched; then something waits for the device anyway
    clock.settle()                      # now the window is complete

On a GPU both ends of a phase are events in its stream. So `data_wait` is the time in which the device was idle because
the next batch was missing; what the host waited while the device was still busy costs nothing and is not counted.
Phases follow each other in one stream and never overlap. What runs in other streams meanwhile, such as the
communication of DDP and FSDP inside the backward, is part of the phase that waits for it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Self, TypeVar

import torch

from seqfit.rundir import records

_T = TypeVar("_T")


@dataclass(frozen=True)
class ClockMoment:
    """A point in the device's work: on a GPU an event in its stream, on a CPU the current time."""

    clock: float
    event: torch.cuda.Event | None

    @classmethod
    def mark(cls, device: torch.device) -> Self:
        """After everything launched so far."""
        event = None
        if device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return cls(time.perf_counter(), event)

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()

    def is_reached(self) -> bool:
        return self.event is None or self.event.query()

    def seconds_since(self, earlier: ClockMoment) -> float:
        """On the device's clock where it has one; both must have been reached."""
        if self.event is None or earlier.event is None:
            return self.clock - earlier.clock
        return float(earlier.event.elapsed_time(self.event)) / 1000


@dataclass(frozen=True)
class _Stretch:
    window: dict[str, float]
    name: records.Phase
    started: ClockMoment
    ended: ClockMoment


class StepClock:
    """Sums up phases for the open window and for the whole run."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._window: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._under_way: deque[_Stretch] = deque()  # on a GPU: those that the device has not finished

    @contextlib.contextmanager
    def phase(self, name: records.Phase) -> Iterator[None]:
        """What is launched inside belongs to this phase; after an error it is not counted."""
        started = ClockMoment.mark(self.device)
        yield
        self._under_way.append(_Stretch(self._window, name, started, ClockMoment.mark(self.device)))
        self.settle()

    def each(self, name: records.Phase, items: Iterator[_T]) -> Iterator[_T]:
        """The same items; waiting for each is a phase."""
        while True:
            with self.phase(name):
                taken = list(islice(items, 1))
            if not taken:
                return
            yield taken[0]

    def take(self) -> dict[str, float]:
        """The window's sums, complete once the device has got here and `settle` was called; starts a new window."""
        window, self._window = self._window, {}
        return window

    def settle(self) -> None:
        """Add up what the device has finished; never waits for it."""
        while self._under_way and self._under_way[0].ended.is_reached():
            done = self._under_way.popleft()
            seconds = done.ended.seconds_since(done.started)
            for sums in (done.window, self._totals):
                sums[done.name] = sums.get(done.name, 0.0) + seconds

    @property
    def totals(self) -> dict[str, float]:
        """Of the whole run, as far as the device has got."""
        self.settle()
        return dict(self._totals)
