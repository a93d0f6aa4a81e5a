"""What may slow a traced step down, as a change that a replay can make; and what every rule uses of a trace.

    loading data takes 400 of 500 ms  ->  waiting-for-data   Change(host={"loading data": 0})
                                          strategy.prefetch=4   dataloader_num_workers=4

`likely` is the best estimate of the fix, `least` and `most` what it saves at worst and at best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from seqfit.profiling.findings import Cause
from seqfit.profiling.host import HostTimeline, SyncRow, is_sync
from seqfit.profiling.replay import Change, Replay
from seqfit.profiling.trace import Interval, KernelSpan, Trace, between, intervals_of, length, merge, overlap
from seqfit.units import format_seconds, format_share


@dataclass(frozen=True)
class CandidateFinding:
    """A finding before its gain is known, with the change of the trace that its fix is."""

    cause: Cause
    sentence: str
    advice: str
    change: tuple[str, ...]  # overrides of a recipe
    trainer: str  # the same for transformers' Trainer
    likely: Change
    least: Change | None = None  # None: as likely
    most: Change | None = None
    evidence: dict[str, float | str] = field(default_factory=dict)
    is_lossy: bool = False


class TraceContext:
    def __init__(self, trace: Trace, host: HostTimeline, replay: Replay, syncs: list[SyncRow]) -> None:
        self.trace, self.host, self.replay, self.syncs = trace, host, replay, syncs
        self.window, self.steps = trace.window_ns, trace.step_count
        self.seconds = trace.span_ns / self.steps / 1e9
        self.shares = host.total(self.window)

    @cached_property
    def launch_of(self) -> dict[int, int]:
        """Correlation -> number of the call."""
        return {c.correlation: n for n, c in enumerate(self.replay.calls) if c.correlation is not None}

    def calls_of(self, numbers: Iterable[int]) -> set[int]:
        correlations = (self.replay.work[number].correlation for number in numbers)
        return {self.launch_of[c] for c in correlations if c is not None and c in self.launch_of}

    def with_their_syncs(self, calls: Iterable[int]) -> set[int]:
        """And the sync that directly follows each: torch waits for a copy from memory that is not pinned."""
        found = set(calls)
        after = {n + 1 for n in found if n + 1 < len(self.replay.calls) and is_sync(self.replay.calls[n + 1])}
        return found | after

    def work_by(self, calls: Iterable[int]) -> set[int]:
        wanted = {self.replay.calls[n].correlation for n in calls if n < len(self.replay.calls)} - {None}
        return {number for number, work in enumerate(self.replay.work) if work.correlation in wanted}

    def calls_in(self, intervals: list[Interval]) -> list[int]:
        """Calls that begin in one of the intervals."""
        return [n for n, c in enumerate(self.replay.calls) if overlap(intervals, (c.start_ns, c.start_ns + 1))]

    def find_work(self, wanted: Callable[[KernelSpan], bool]) -> list[int]:
        return [number for number, work in enumerate(self.replay.work) if wanted(work)]

    def work_share(self, numbers: Iterable[int]) -> float:
        """Share of the window in which at least one of them ran."""
        ran = merge(intervals_of(self.replay.work[number] for number in numbers))
        return length(between(ran, self.window)) / max(self.trace.span_ns, 1)

    def describe_share(self, share: float) -> str:
        """'400 ms of each 500 ms step (80.0%)'."""
        spent, step = format_seconds(share * self.seconds), format_seconds(self.seconds)
        return f"{spent} of each {step} step ({format_share(share)})"


def at_place(place: str | None) -> str:
    return f", most of it in {place}" if place else ""


def mean_microseconds(kernels: list[KernelSpan]) -> str:
    return f"{sum(kernel.duration_ns for kernel in kernels) / len(kernels) / 1000:.0f}"
