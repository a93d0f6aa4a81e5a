"""What a profiler recorded, in one form for all file formats; and times as intervals.

In: nothing; `readers.py` fills it. Out: `Trace`, on which all tables are computed. Every time is an integer number of
nanoseconds on the trace's own clock, so that sums are exact; the same `correlation` joins a launch with its kernel:

    Call("cudaLaunchKernel", start_ns=1_000, duration_ns=200, thread="7", correlation=5)
    KernelSpan("gemm", start_ns=1_900, duration_ns=4_000, device=0, stream=7, correlation=5)

Intervals are (start, end) pairs of nanoseconds; spans of a thread may lie inside each other:

    merge [(0, 4), (2, 6), (9, 10)]  ->  [(0, 6), (9, 10)]      gaps of it in (0, 12)  ->  [(6, 9), (10, 12)]

    outer |---------------|          self time of outer: its length without inner's
      inner   |---|                  innermost span at a moment inside inner: inner
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any, TypeVar

MODULE_PREFIX = "module: "  # of the ranges that `capture.py` opens around each module's forward
DATA_WAIT = "data_wait"  # the range in which the loop waits for its next batch
BACKWARD_PREFIX = "autograd::engine::evaluate_function: "
PROFILER_STEP = "ProfilerStep#"  # torch.profiler's own range, one for each call of prof.step()
OPTIMIZER_RANGE = "Optimizer.step"  # torch opens it around every optimizer's step
PAD_SEQUENCE = "aten::pad_sequence"
_SHAPED_OPS = frozenset({"aten::embedding", "aten::copy_", PAD_SEQUENCE})


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    def holds(self, moment_ns: int) -> bool:
        return self.start_ns <= moment_ns < self.end_ns


@dataclass(frozen=True, slots=True)
class HostSpan(Span):
    """A range or a Python function, on a thread of the host."""

    thread: str


@dataclass(frozen=True, slots=True)
class Call(HostSpan):
    correlation: int | None = None


@dataclass(frozen=True, slots=True)
class Op(HostSpan):
    sequence: int | None = None  # an operator and the node of its backward have the same
    is_backward: bool = False
    shapes: tuple[tuple[int, ...], ...] = ()  # of its inputs, where the trace has them and a rule needs them


@dataclass(frozen=True, slots=True)
class KernelSpan(Span):
    device: int
    stream: int
    correlation: int | None = None
    message_elements: int | None = field(default=None, kw_only=True)  # of a collective, where the trace has it


@dataclass(frozen=True, slots=True)
class Copy(KernelSpan):
    """A copy to, from or within the device, or a memset; its name is the kind, such as HtoD."""

    size_bytes: int = 0
    is_pageable: bool = False  # the host's side is not pinned, so that the host waits until it has been read or written


@dataclass(frozen=True, slots=True)
class TracedGpu:
    name: str
    capability: tuple[int, int] | None = None  # of compute, such as (8, 6)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory allocated (positive) or freed (negative)."""

    time_ns: int
    size_bytes: int
    address: int
    on_device: bool
    total_bytes: int  # what the allocator holds afterwards


@dataclass(frozen=True, slots=True)
class Trace:
    source: str  # the file's name
    kind: str  # kineto or nsight
    calls: tuple[Call, ...] = ()
    kernels: tuple[KernelSpan, ...] = ()
    copies: tuple[Copy, ...] = ()
    ops: tuple[Op, ...] = ()
    ranges: tuple[HostSpan, ...] = ()  # annotations, modules, NVTX
    frames: tuple[HostSpan, ...] = ()  # Python functions: 'training/log.py(150): _finish'
    steps: tuple[HostSpan, ...] = ()  # see steps.py
    steps_by: str = ""  # how they were found; empty: not at all
    device_steps: tuple[tuple[int, int], ...] = ()  # start and end of each as the device runs it, later than the host
    allocations: tuple[Allocation, ...] = ()
    gpus: dict[int, TracedGpu] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        return bool(self.kernels or self.calls)

    @property
    def window_ns(self) -> tuple[int, int]:
        """From the first step's beginning to the last one's end; without steps, from the first to the last event."""
        work: list[Span] = [*self.steps] or [*chain(self.kernels, self.copies, self.calls, self.ops)]
        if not work:
            return (0, 0)
        return min(span.start_ns for span in work), max(span.end_ns for span in work)

    @property
    def span_ns(self) -> int:
        start, end = self.window_ns
        return end - start

    @property
    def step_seconds(self) -> float:
        """The median of its steps, so that one with an evaluation in it, or the first, does not distort it."""
        return median([end - start for start, end in self.step_intervals_ns] or [self.span_ns]) / 1e9

    @property
    def step_intervals_ns(self) -> tuple[tuple[int, int], ...]:
        """Each step on the device where there is one, else on the host."""
        return self.device_steps or tuple((step.start_ns, step.end_ns) for step in self.steps)

    def launch_times(self) -> dict[int | None, int]:
        """Correlation -> start of the call, in nanoseconds."""
        return {call.correlation: call.start_ns for call in self.calls if call.correlation is not None}

    @property
    def step_count(self) -> int:
        """At least one, so that figures per step are those of the whole trace where it has no steps."""
        return max(len(self.steps), 1)


def parse_shapes(dims: Any) -> tuple[tuple[int, ...], ...]:
    """[[100, 8], [2, 512], []] -> ((100, 8), (2, 512), ()); of a list of tensors, the first input, those in it."""
    if not isinstance(dims, list):
        return ()
    if dims and isinstance(dims[0], list) and dims[0] and all(isinstance(d, list) for d in dims[0]):
        dims = dims[0]
    return tuple(tuple(d) if isinstance(d, list) and all(isinstance(n, int) for n in d) else () for d in dims)


def needs_shapes(operator: str) -> bool:
    """Whether a rule needs the shapes of this operator's inputs; those of others would only waste memory."""
    return operator in _SHAPED_OPS or "varlen" in operator


Interval = tuple[int, int]
_Item = TypeVar("_Item")
_GroupKey = TypeVar("_GroupKey", bound=Hashable)
H = TypeVar("H", bound=HostSpan)


def intervals_of(spans: Iterable[Span]) -> list[Interval]:
    return [(span.start_ns, span.end_ns) for span in spans]


def merge(intervals: Iterable[Interval], pause: int = 0) -> list[Interval]:
    """Their union, as intervals that do not touch, in order; gaps of up to `pause` between two belong to it."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1] + pause:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    pairs = ((max(start, window[0]), min(end, window[1])) for start, end in intervals)
    return [(start, end) for start, end in pairs if end > start]


def gaps(merged: Sequence[Interval], window: Interval) -> list[Interval]:
    """The parts of the window that a union (as `merge` gives it) leaves free."""
    edges = [window[0], *(edge for interval in clip(merged, window) for edge in interval), window[1]]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end > start]


def length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def between(merged: Sequence[Interval], window: Interval) -> list[Interval]:
    """The part of a union in the window, without a scan of all of it."""
    first = max(bisect.bisect_right(merged, (window[0],)) - 1, 0)
    last = bisect.bisect_left(merged, (window[1],))
    return clip(merged[first:last], window)


def overlap(merged: Sequence[Interval], window: Interval) -> int:
    """How much of the window a union covers."""
    return length(between(merged, window))


def group_by(items: Iterable[_Item], key: Callable[[_Item], _GroupKey]) -> dict[_GroupKey, list[_Item]]:
    groups: dict[_GroupKey, list[_Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def sorted_spans(spans: Iterable[H]) -> list[H]:
    """By start; of those that start together the outer one first."""
    return sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns))


def outermost(spans: Iterable[H]) -> list[H]:
    """In order, without those inside another one of their thread."""
    kept: list[H] = []
    ends: dict[str, int] = {}
    for span in sorted_spans(spans):
        if span.start_ns >= ends.get(span.thread, -1):
            ends[span.thread] = span.end_ns
            kept.append(span)
    return kept


def self_times(spans: Iterable[H]) -> list[tuple[H, int]]:
    """Each span with its length less that of the spans directly inside it, thread by thread."""
    result: list[tuple[H, int]] = []
    for spans_of_thread in group_by(spans, lambda span: span.thread).values():
        ordered = sorted_spans(spans_of_thread)
        own = [span.duration_ns for span in ordered]
        open_spans: list[int] = []
        for number, span in enumerate(ordered):
            while open_spans and ordered[open_spans[-1]].end_ns <= span.start_ns:
                open_spans.pop()
            if open_spans:
                own[open_spans[-1]] -= span.duration_ns
            open_spans.append(number)
        result += [(span, max(time, 0)) for span, time in zip(ordered, own, strict=True)]
    return result


class Nesting:
    """Finds the innermost span at a moment of a thread."""

    def __init__(self, spans: Iterable[HostSpan]) -> None:
        by_thread = group_by(spans, lambda span: span.thread)
        self._changes = {thread: _innermost_changes(sorted_spans(inside)) for thread, inside in by_thread.items()}

    def at(self, thread: str, moment_ns: int) -> HostSpan | None:
        moments, spans = self._changes.get(thread, ([], []))
        place = bisect.bisect_right(moments, moment_ns) - 1
        return spans[place] if place >= 0 else None


def _innermost_changes(ordered: Sequence[HostSpan]) -> tuple[list[int], list[HostSpan | None]]:
    """The moments at which the innermost span changes, and the span from each on."""
    moments: list[int] = []
    spans: list[HostSpan | None] = []
    open_spans: list[HostSpan] = []

    def close_until(moment: float) -> None:
        while open_spans and open_spans[-1].end_ns <= moment:
            closed = open_spans.pop()
            moments.append(closed.end_ns)
            spans.append(open_spans[-1] if open_spans else None)

    for span in ordered:
        close_until(span.start_ns)
        open_spans.append(span)
        moments.append(span.start_ns)
        spans.append(span)
    close_until(float("inf"))
    return moments, spans
