"""Replays a traced step with something changed, and computes how long it would have taken.

In: a `Trace` and its `HostTimeline`. Out: nanoseconds with and without a `Change`; the difference is what a fix saves,
and it can't exceed the step. The host is one sequence of calls and of the time between them; a device is one queue per
stream. Nothing starts before what it waited for in the trace:

    a kernel     its launch, the kernel before it on its stream, and one of another stream that ended right before it
    a sync       the device's work that ended while the host was in the call
    a launch     the work 1,024 places before it in the queue, which is as many as CUDA keeps

    host   |launch a|launch b|sync until b ends|  loading 400  |launch a ...
    GPU      |a 50       |b 50 |                                 |a 50 ...
    without the sync   the host loads while a and b run: 100 of 500 are saved, not the 400 during which the GPU was idle
    without loading    400 of 500 are saved

A trace without a device is the host's sequence alone.

What is compared is how long the steps after the first one take: a profiler starts with an empty queue, so the first
batch is waited for in full, however well the following ones are hidden behind the device's work.

A rule (host_causes.py, device_causes.py) gets a `TraceContext` and makes `CandidateFinding`s: what may slow the step
down, with the fix as a change. `likely` is the best estimate, `least` and `most` what it saves at worst and at best.

    loading data takes 400 of 500 ms  ->  waiting-for-data   Change(host={"loading data": 0})
                                          strategy.prefetch=4   dataloader_num_workers=4
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TypeVar

from seqfit.profiling.findings import Cause
from seqfit.profiling.host import EVALUATING, SAVING, UNKNOWN, HostTimeline, SyncRow, is_sync
from seqfit.profiling.trace import Call, Copy, Interval, KernelSpan, Trace, intervals_of, merge, outermost, overlap
from seqfit.units import format_seconds, format_share

_ReplayKey = TypeVar("_ReplayKey", int, str)
_QUEUE = 1024  # launches that CUDA keeps before a launch blocks
_ALMOST_FULL = 0.9
_SLACK_NS = 2_000  # host and device have clocks of their own, which a profiler aligns to about a microsecond
_ROUNDING_NS = 10  # Kineto writes microseconds with three digits, starts and lengths apart
_NEAR_NS = 10_000  # work of another stream that ended this long before a start is what it waited for
_LATENCY_NS = 5_000  # from a launch to its kernel, where the trace does not show it
_FEW_STEPS = 3  # from this many on, the first one does not count
_UNBLOCKED_NS = 5_000  # of a call that no longer waits


@dataclass(frozen=True)
class Change:
    """What is different in a replay; by default nothing."""

    host: Mapping[str, float] = field(default_factory=dict)  # activity -> factor of the host's time in it
    without_syncs: bool = False
    calls: Mapping[int, float] = field(default_factory=dict)  # number of a call -> factor of it and the pause before
    work: Mapping[int, float] = field(default_factory=dict)  # number of a kernel or copy -> factor of its time
    free: frozenset[int] = frozenset()  # work that nothing waits for, and that does not block its stream

    def host_time(self, times_ns: Mapping[str, int]) -> float:
        return sum(time_ns * self.host.get(activity, 1.0) for activity, time_ns in times_ns.items())

    def __or__(self, other: Change) -> Change:
        """Both of them; where both change the same thing the stronger one counts."""
        return Change(
            host=_strongest(self.host, other.host),
            without_syncs=self.without_syncs or other.without_syncs,
            calls=_strongest(self.calls, other.calls),
            work=_strongest(self.work, other.work),
            free=self.free | other.free,
        )


UNCHANGED = Change()


@dataclass(slots=True)
class _HostItem:
    call: Call | None
    before: dict[str, int]
    duration_ns: int
    activity: str | None = None
    starts: list[int] = field(default_factory=list)
    waits_for: int | None = None
    after_wait_ns: int = 0
    first_step: dict[str, int] | None = None  # the part of `before` that is the first step's, if the second begins here


@dataclass(slots=True)
class _Work:
    item: KernelSpan
    latency_ns: int = 0
    delay_ns: int = 0
    waits_for: int | None = None


class Replay:
    """A trace that can be replayed; `work` and `calls` are numbered as in a `Change`."""

    def __init__(self, trace: Trace, host: HostTimeline) -> None:
        self._window = trace.window_ns
        self.steps = trace.step_count
        self.work: list[KernelSpan] = sorted(
            (w for w in (*trace.kernels, *trace.copies) if self._window[0] <= w.start_ns < self._window[1]),
            key=lambda w: w.start_ns,
        )
        self.calls: list[Call] = outermost(
            call
            for call in trace.calls
            if call.thread in host.threads and self._window[0] <= call.start_ns < self._window[1]
        )
        self._by_end = sorted(range(len(self.work)), key=lambda number: self.work[number].end_ns)
        self._ends = [self.work[number].end_ns for number in self._by_end]
        self._settles = self._find_settling(trace, host)
        self._place = self._link(host)
        self.before_ns = self.run()

    def time_before(self, call: int) -> int:
        """The host's time between a call and the one before it; for the number of calls, that after the last one."""
        return sum(self._items[call].before.values())

    def gain(self, change: Change) -> float:
        """Share of the time that the change saves: from 0 to 1."""
        if not self.before_ns:
            return 0.0
        return min(max(1 - self.run(change) / self.before_ns, 0.0), 1.0)

    def run(self, change: Change = UNCHANGED) -> int:
        """From the first step's end to the last one's; of fewer than three steps, from the first event."""
        clock = settled = 0
        ends: dict[int, int] = {}
        stream_ends: dict[tuple[int, int], int] = {}
        queue: list[int] = []

        for number in self._early:  # launched before the trace began, or at an unknown time
            self._execute(number, None, ends, stream_ends, change)
        for number, item in enumerate(self._items):
            factor = change.calls.get(number, 1.0)
            if item.first_step is not None:
                settled = clock + round(change.host_time(item.first_step) * factor)
            clock += round(change.host_time(item.before) * factor)
            called = clock
            scale = factor * (change.host.get(item.activity, 1.0) if item.activity else 1.0)
            own_ns = item.duration_ns if item.waits_for is None else min(item.duration_ns, _UNBLOCKED_NS)
            clock += round(own_ns * scale)
            for started in item.starts:
                queue.append(self._execute(started, called, ends, stream_ends, change))
                if len(queue) > _QUEUE:
                    clock = max(clock, queue[-_QUEUE - 1])
            if item.waits_for is not None and factor and not change.without_syncs:
                clock = max(clock, ends.get(item.waits_for, 0) + item.after_wait_ns)
        settled = max([settled, *(ends[number] for number in self._first if number in ends)])
        return max([clock, *ends.values()]) - settled

    def _execute(
        self,
        number: int,
        called: int | None,
        ends: dict[int, int],
        stream_ends: dict[tuple[int, int], int],
        change: Change,
    ) -> int:
        """Its start; its end is kept."""
        work = self._place[number]
        stream = (work.item.device, work.item.stream)
        factor = change.work.get(number, 1.0)  # with a kernel that is fused into others the gap before it disappears
        start = stream_ends[stream] + round(self._gap_ns * min(factor, 1.0)) if stream in stream_ends else 0
        if called is not None:
            start = max(start, called + work.latency_ns)
        if work.waits_for is not None and work.waits_for not in change.free:
            start = max(start, ends.get(work.waits_for, 0))
        start += work.delay_ns
        duration = round(work.item.duration_ns * factor)
        ends[number] = start + duration
        if number in change.free:
            ends[number] = start
        else:
            stream_ends[stream] = start + duration
        return start

    @staticmethod
    def _find_settling(trace: Trace, host: HostTimeline) -> int | None:
        """When the host is done with the first step; None where that step counts as well."""
        if len(trace.steps) < _FEW_STEPS or not trace.on_gpu:
            return None
        first = (trace.steps[0].start_ns, trace.steps[0].end_ns)
        return None if host.when(EVALUATING, first) or host.when(SAVING, first) else first[1]

    def _link(self, host: HostTimeline) -> dict[int, _Work]:
        by_correlation: dict[int, list[int]] = {}
        for number, work in enumerate(self.work):
            if work.correlation is not None:
                by_correlation.setdefault(work.correlation, []).append(number)
        launched: dict[int, Call] = {}
        self._items: list[_HostItem] = []
        reached = self._window[0]
        blocked = _blocked_launches(self.calls, by_correlation, self.work)
        usual = _usual_durations(self.calls, by_correlation, blocked)
        self._first: list[int] = []
        for number, call in enumerate(self.calls):
            starts = by_correlation.get(call.correlation, []) if call.correlation is not None else []
            first_step = None
            if self._settles is not None and call.start_ns < self._settles:
                self._first += starts
            elif self._settles is not None and reached <= self._settles:
                first_step = host.charge((reached, self._settles))
            launched |= dict.fromkeys(starts, call)
            duration = max(call.end_ns - max(call.start_ns, reached), 0)
            if starts and not is_sync(call) and call.name in usual:  # a replay models a full queue itself
                duration = min(duration, (1 if number in blocked else 20) * usual[call.name])
            activity = next(iter(host.charge((call.start_ns, max(call.end_ns, call.start_ns + 1)))), None)
            before = host.charge((reached, max(call.start_ns, reached)))
            self._items.append(_HostItem(call, before, duration, activity, starts, first_step=first_step))
            reached = max(reached, call.end_ns)
        self._items.append(_HostItem(None, host.charge((reached, max(host.end_ns, reached))), 0))
        places = self._hold_up(launched)
        self._find_waits(launched)
        self._early = [number for number in range(len(self.work)) if number not in launched]
        return places

    def _hold_up(self, launched: Mapping[int, Call]) -> dict[int, _Work]:
        """What each kernel or copy waited for."""
        latency, self._gap_ns = _usual_delays(self.work, launched)
        stream_end: dict[tuple[int, int], int] = {}
        places: dict[int, _Work] = {}
        for number, item in enumerate(self.work):
            stream = (item.device, item.stream)
            call = launched.get(number)
            bounds = [stream_end.get(stream, self._window[0])]
            own_latency = 0
            if call is not None:
                own_latency = max(min(latency, item.start_ns - call.start_ns), 0)
                bounds.append(call.start_ns + own_latency)
            late = item.start_ns - max(bounds)
            other = None
            if late > _SLACK_NS:
                other = self._ended_before(item)
                late = 0 if other is not None else late
            places[number] = _Work(item, own_latency, max(late, 0) if late > _SLACK_NS else 0, other)
            stream_end[stream] = max(stream_end.get(stream, 0), item.end_ns)
        return places

    def _ended_before(self, item: KernelSpan) -> int | None:
        """Work of another stream of the same device, or a copy, that ended right before the start."""
        place = bisect.bisect_right(self._ends, item.start_ns + _ROUNDING_NS) - 1
        while place >= 0 and self._ends[place] >= item.start_ns - _NEAR_NS:
            other = self.work[self._by_end[place]]
            if other.device == item.device and other.stream != item.stream:
                return self._by_end[place]
            place -= 1
        return None

    def _find_waits(self, launched: Mapping[int, Call]) -> None:
        """Which work each sync really waited for: what ended in the call, and had been launched before."""
        for item in self._items:
            call = item.call
            if call is None:
                continue
            # A copy to pageable memory of the host returns when it has been made.
            to_host = (w for n in item.starts if isinstance(w := self.work[n], Copy) and w.name == "DtoH")
            if not is_sync(call) and all(copy.end_ns > call.end_ns + _SLACK_NS for copy in to_host):
                continue
            place = bisect.bisect_right(self._ends, call.end_ns + _SLACK_NS) - 1
            while place >= 0 and self._ends[place] > call.start_ns:
                maker = launched.get(self._by_end[place])
                if maker is None or maker.start_ns <= call.start_ns:
                    item.waits_for = self._by_end[place]
                    item.after_wait_ns = max(call.end_ns - self._ends[place], 0)
                    break
                place -= 1


def _blocked_launches(calls: list[Call], by_correlation: Mapping[int, list[int]], work: list[KernelSpan]) -> set[int]:
    """Launches into a queue that was almost full: they block until the device has started some of it."""
    started = sorted(item.start_ns for item in work)
    blocked: set[int] = set()
    launched = len(work) - sum(len(by_correlation.get(c.correlation, [])) for c in calls if c.correlation is not None)
    for number, call in enumerate(calls):
        launched += len(by_correlation.get(call.correlation, [])) if call.correlation is not None else 0
        if launched - bisect.bisect_right(started, call.start_ns) >= _ALMOST_FULL * _QUEUE:
            blocked.add(number)
    return blocked


def _usual_durations(calls: list[Call], by_correlation: Mapping[int, list[int]], blocked: set[int]) -> dict[str, int]:
    times: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        if call.correlation in by_correlation and number not in blocked:
            times.setdefault(call.name, []).append(call.duration_ns)
    return {
        name: max(round(median(values)), 1)
        for name, values in times.items()
        if len(values) >= 8 and "emcpy" not in name
    }


def _usual_delays(work: list[KernelSpan], launched: Mapping[int, Call]) -> tuple[int, int]:
    """From a launch to the kernel's start, where the device had nothing else to do.

    And from one kernel to the next of its stream, where that one had been launched long before.
    """
    stream_end: dict[tuple[int, int], int] = {}
    latencies, pauses = [], []
    for number, item in enumerate(work):
        stream = (item.device, item.stream)
        call, end = launched.get(number), stream_end.get(stream, 0)
        if call is not None and end <= call.start_ns:
            latencies.append(item.start_ns - call.start_ns)
        if call is not None and stream in stream_end and call.end_ns < end - _NEAR_NS:
            pauses.append(item.start_ns - end)
        stream_end[stream] = item.end_ns
    latencies = [time_ns for time_ns in latencies if 0 <= time_ns < 20 * _LATENCY_NS]
    pauses = [time_ns for time_ns in pauses if 0 <= time_ns <= _SLACK_NS]
    return round(median(latencies)) if latencies else _LATENCY_NS, round(median(pauses)) if pauses else 0


def _strongest(first: Mapping[_ReplayKey, float], second: Mapping[_ReplayKey, float]) -> dict[_ReplayKey, float]:
    return dict(first) | {key: min(factor, first.get(key, 1.0)) for key, factor in second.items()}


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
        self.sync_place = next((row.place for row in syncs if row.place != UNKNOWN), None)

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
        return overlap(ran, self.window) / max(self.trace.span_ns, 1)

    def describe_share(self, share: float) -> str:
        """'400 ms of each 500 ms step (80.0%)'."""
        spent, step = format_seconds(share * self.seconds), format_seconds(self.seconds)
        return f"{spent} of each {step} step ({format_share(share)})"


def at_place(place: str | None) -> str:
    return f", most of it in {place}" if place else ""


def mean_microseconds(kernels: list[KernelSpan]) -> str:
    return f"{sum(kernel.duration_ns for kernel in kernels) / len(kernels) / 1000:.0f}"
