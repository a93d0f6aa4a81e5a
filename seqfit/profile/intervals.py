"""Times as intervals: unions, gaps and overlaps; and spans that lie inside each other on a thread.

Intervals are (start, end) pairs of nanoseconds.

    merge [(0, 4), (2, 6), (9, 10)]  ->  [(0, 6), (9, 10)]      gaps of it in (0, 12)  ->  [(6, 9), (10, 12)]

    outer |---------------|          self time of outer: its length without inner's
      inner   |---|                  innermost span at a moment inside inner: inner
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from seqfit.profile.trace import HostSpan, Span

Interval = tuple[int, int]
Key = TypeVar("Key", bound=Hashable)
S = TypeVar("S", bound=Span)
H = TypeVar("H", bound=HostSpan)


def intervals_of(spans: Iterable[Span]) -> list[Interval]:
    """(start, end) of each."""
    return [(span.start_ns, span.end_ns) for span in spans]


def merge(intervals: Iterable[Interval], pause: int = 0) -> list[Interval]:
    """Their union, as intervals that do not touch, in order; pauses between two of up to `pause` belong to it."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1] + pause:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """What of them lies in the window."""
    pairs = ((max(start, window[0]), min(end, window[1])) for start, end in intervals)
    return [(start, end) for start, end in pairs if end > start]


def gaps(merged: Sequence[Interval], window: Interval) -> list[Interval]:
    """What of the window a union (as `merge` gives it) leaves free."""
    edges = [window[0], *(edge for interval in clip(merged, window) for edge in interval), window[1]]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end > start]


def length(intervals: Iterable[Interval]) -> int:
    """Their lengths, added up."""
    return sum(end - start for start, end in intervals)


def between(merged: Sequence[Interval], window: Interval) -> list[Interval]:
    """What of a union lies in the window, without looking at all of it."""
    first = max(bisect.bisect_right(merged, (window[0],)) - 1, 0)
    last = bisect.bisect_left(merged, (window[1],))
    return clip(merged[first:last], window)


def overlap(merged: Sequence[Interval], window: Interval) -> int:
    """How much of the window a union covers."""
    return length(between(merged, window))


def group_by(items: Iterable[S], key: Callable[[S], Key]) -> dict[Key, list[S]]:
    """Lists of what has the same key."""
    groups: dict[Key, list[S]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def in_order(spans: Iterable[H]) -> list[H]:
    """By start; of those that start together the outer one first."""
    return sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns))


def outermost(spans: Iterable[H]) -> list[H]:
    """In order, without those inside another one of their thread."""
    kept: list[H] = []
    ends: dict[str, int] = {}
    for span in in_order(spans):
        if span.start_ns >= ends.get(span.thread, -1):
            ends[span.thread] = span.end_ns
            kept.append(span)
    return kept


def self_times(spans: Iterable[H]) -> list[tuple[H, int]]:
    """Each span with its length less that of the spans directly inside it, thread by thread."""
    result: list[tuple[H, int]] = []
    for spans_of_thread in group_by(spans, lambda span: span.thread).values():
        ordered = in_order(spans_of_thread)
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
    """Answers which span is the innermost at a moment of a thread."""

    def __init__(self, spans: Iterable[HostSpan]) -> None:
        self._changes: dict[str, tuple[list[int], list[HostSpan | None]]] = {}
        for thread, spans_of_thread in group_by(spans, lambda span: span.thread).items():
            self._changes[thread] = _innermost_changes(in_order(spans_of_thread))

    def at(self, thread: str, moment_ns: int) -> HostSpan | None:
        """The innermost span that holds the moment."""
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
