"""Finds the training steps of a trace, whoever wrote it.

In: a `Trace`. Out: the same trace with its steps, and by what they were found; the first of these that is there:

    ProfilerStep#3            torch.profiler was called once per step (prof.step())
    ranges named step         NVTX or record_function: "step", "train_step 7", "iteration", also our own
    Optimizer.step#AdamW.step a step ends where the optimizer's does
    repeated kernels          the sequence of kernel (or operator) names repeats: abcde abcde abcde -> 3 steps

A step lasts until the next one begins, so that what happens between two ranges (loading a batch) belongs to one.
Without steps the whole trace is one, and `steps_by` says so.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from seqfit.profile.intervals import group_by, in_order, outermost
from seqfit.profile.trace import OPTIMIZER_RANGE, HostSpan, Span, Trace

PROFILER_STEP = "ProfilerStep#"
_STEP_NAME = re.compile(
    r"^(?:.*[\s_.:/#-])?(?:step|iteration|iter|batch|train_batch)(?:[\s_.:/#-]*\d+)?$", re.IGNORECASE
)
_NOT_A_STEP = re.compile(r"optimi[sz]er|sched|data|load|next|eval|valid|get|fetch|copy|zero", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_WARM_UP = 3.0
_REPEATS = 0.97  # of the names at a distance of one period that have to be equal
_MOST_CANDIDATES = 40
_SHORTEST_PERIOD = 4  # names: a step that launches fewer kernels could be anything


def find_steps(trace: Trace) -> Trace:
    """The trace with `steps` and `steps_by`."""
    if trace.steps:
        ordered = sorted(trace.steps, key=lambda step: step.start_ns)
        return _follow_the_device(replace(trace, steps=tuple(ordered), steps_by="ProfilerStep"))
    for steps, by in (
        (_find_ranges(trace), "ranges named like a step"),
        (_find_updates(trace), "the optimizer's updates"),
        (_find_repeats(trace), "the kernels that repeat" if trace.kernels else "the operators that repeat"),
    ):
        if steps:
            return _follow_the_device(replace(trace, steps=tuple(steps), steps_by=by))
    return trace


def _follow_the_device(trace: Trace) -> Trace:
    """The steps as the device sees them: the host may be done with all of them before the first has run.

    A step of the device begins with the first work that the host launched in it; the last one ends with its last work,
    and so does the host's, so that the window holds all of it.
    """
    starts = [step.start_ns for step in trace.steps]
    step_of: dict[int, int] = {}
    for call in trace.calls:
        place = bisect.bisect_right(starts, call.start_ns) - 1
        if call.correlation is not None and place >= 0 and call.start_ns < trace.steps[-1].end_ns:
            step_of[call.correlation] = place
    first: dict[int, int] = {}
    end = trace.steps[-1].end_ns
    for work in (*trace.kernels, *trace.copies):
        if work.correlation is not None and work.correlation in step_of:
            step = step_of[work.correlation]
            first[step] = min(first.get(step, work.start_ns), work.start_ns)
            end = max(end, work.end_ns)
    last = replace(trace.steps[-1], duration_ns=end - trace.steps[-1].start_ns)
    trace = replace(trace, steps=(*trace.steps[:-1], last))
    if len(first) < len(starts):
        return _without_warm_up(trace)
    edges = [*(first[step] for step in range(len(starts))), end]
    return _without_warm_up(replace(trace, device_steps=tuple(pairwise(edges))))


def _without_warm_up(trace: Trace) -> Trace:
    """A first step that takes several times as long as the others (compiling, allocating) says nothing of them."""
    lengths = [end - start for start, end in trace.step_intervals_ns]
    if len(lengths) < 4 or lengths[0] < _WARM_UP * median(lengths):
        return trace
    by = f"{trace.steps_by}; the first one, {lengths[0] / median(lengths):.0f} times as long, is left out"
    return replace(trace, steps=trace.steps[1:], device_steps=trace.device_steps[1:], steps_by=by)


def _find_ranges(trace: Trace) -> list[HostSpan]:
    """The ranges of one name (whatever its number) on one thread, at least two, the outermost of those that match."""
    named = [span for span in trace.ranges if _STEP_NAME.match(span.name) and not _NOT_A_STEP.search(span.name)]
    groups = group_by(named, lambda span: (span.thread, _DIGITS.sub("#", span.name)))
    best: list[HostSpan] = []
    for spans in groups.values():
        apart = _disjoint(in_order(spans))
        if len(apart) >= 2 and sum(s.duration_ns for s in apart) > sum(s.duration_ns for s in best):
            best = apart
    return _until_the_next(best)


def _disjoint(ordered: Sequence[HostSpan]) -> list[HostSpan]:
    kept: list[HostSpan] = []
    for span in ordered:
        if not kept or span.start_ns >= kept[-1].end_ns:
            kept.append(span)
    return kept


def _until_the_next(spans: Sequence[HostSpan]) -> list[HostSpan]:
    """Each from its beginning to that of the next one."""
    return [*(replace(a, duration_ns=b.start_ns - a.start_ns) for a, b in pairwise(spans)), *spans[-1:]]


def _find_updates(trace: Trace) -> list[HostSpan]:
    """A step ends with its update; several optimizers of one step follow each other and count once."""
    updates = in_order(span for span in trace.ranges if span.name.startswith(OPTIMIZER_RANGE))
    updates = _disjoint([span for span in updates if span.name == updates[0].name])
    if len(updates) < 2:
        return []
    begin = trace.window_ns[0]
    edges = [begin, *(span.end_ns for span in updates)]
    return [HostSpan(f"step {n}", a, b - a, updates[0].thread) for n, (a, b) in enumerate(pairwise(edges))]


def _find_repeats(trace: Trace) -> list[HostSpan]:
    """Whole periods of the sequence of names; nothing where it does not repeat."""
    work: list[Span] = sorted(trace.kernels or outermost(trace.ops), key=lambda span: span.start_ns)
    names = [span.name for span in work]
    period = find_period(names)
    if period is None:
        return []
    starts = [span.start_ns for span in work[::period]]
    if len(work) % period:
        starts = starts[: len(work) // period]
    end = trace.window_ns[1] if len(work) % period == 0 else work[len(starts) * period].start_ns
    edges = [*starts, end]
    return [HostSpan(f"step {n}", a, b - a, "") for n, (a, b) in enumerate(pairwise(edges))]


def find_period(names: Sequence[str]) -> int | None:
    """The smallest distance at which (almost) every name comes again: 'abcabcabc' -> 3.

    Layers repeat inside a step, too, but not from its first name to its last: where the next layer is another one, or
    the backward begins, the names differ, which is more than the few that vary from step to step.
    """
    counts = Counter(names)
    repeated = sorted((count, name) for name, count in counts.items() if count >= 2)
    candidates: set[int] = set()
    for _, name in repeated[:_MOST_CANDIDATES]:
        places = [place for place, other in enumerate(names) if other == name]
        candidates |= {b - a for a, b in pairwise(places[: _MOST_CANDIDATES + 1])}
        candidates.add(places[-1] - places[0])
    for period in sorted(candidate for candidate in candidates if _SHORTEST_PERIOD <= candidate <= len(names) / 2):
        equal = sum(a == b for a, b in zip(names, names[period:], strict=False))
        if equal >= _REPEATS * (len(names) - period):
            return period
    return None
