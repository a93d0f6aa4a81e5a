"""Finds the training steps of a trace, whoever wrote it.

In: a `Trace`. Out: the same trace with its steps, and by what they were found; the first of these that is there:

    ProfilerStep#3            torch.profiler was called once per step (prof.step())
    ranges named step         NVTX or record_function: "step", "train_step 7", "iteration", also our own
    Optimizer.step#AdamW.step a step ends where the optimizer's does; also an NVTX range named optimizer
    kernels of an update      a step ends with the kernels of Adam or another optimizer
    repeated kernels          the sequence of kernel (or operator) names repeats: abcde abcde abcde -> 3 steps
    kernels of every step     some names come once per step, whatever lies between: abxcd abcd abxxcd -> a, b, c, d

A step lasts until the next one begins, so that what happens between two ranges (loading a batch) belongs to one.
Without steps the whole trace is one, and `steps_by` says so.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from seqfit.profiling.trace import OPTIMIZER_RANGE, HostSpan, KernelSpan, Span, Trace, group_by, outermost, sorted_spans

# How steps were found, as it is printed
BY_PROFILER, BY_RANGES, BY_UPDATES = "ProfilerStep", "ranges named like a step", "the optimizer's updates"
BY_UPDATE_KERNELS, BY_KERNELS = "the kernels of the optimizer", "the kernels that repeat"
BY_OPERATORS = "the operators that repeat"
_STEP_NAME = re.compile(
    r"^(?:.*[\s_.:/#-])?(?:step|iteration|iter|batch|train_batch)(?:[\s_.:/#-]*\d+)?$", re.IGNORECASE
)
_NOT_A_STEP = re.compile(r"optimi[sz]er|sched|data|load|next|eval|valid|get|fetch|copy|zero", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_UPDATE_RANGE = re.compile(r"^(optimizer|optim|optimizer[\s_.:/#-]?step|update|weight.?update)$", re.IGNORECASE)
# What torch's and apex' optimizers call their kernels; addcdiv is the last operator of an Adam that loops over weights.
_UPDATE_KERNEL = re.compile(r"adam|fused_?(optimizer|sgd|adagrad)|lamb(?!da)|adafactor|addcdiv|PointwiseOpScalar", re.I)
_FOREACH_KERNEL = re.compile(r"multi_tensor_apply")  # of foreach operators, where only the short name is known
MATRIX_PRODUCT = re.compile(r"gemm|cutlass|nvjet|xmma|matmul|cublas", re.IGNORECASE)
_ALLOCATION = re.compile(r"^(cuda|hip)Malloc|^cuMem(Create|Alloc)")
_WARM_UP = 3.0
CHECKPOINT_BYTES = 16 * 2**20  # copied back at once: weights, not scores
_ALIKE = 0.1  # steps whose numbers of kernels differ by less are of one kind
_REPEATS = 0.97  # of the names at a distance of one period that have to be equal
_MOST_CANDIDATES = 40
_SHORTEST_PERIOD = 4  # names: a step that launches fewer kernels could be anything


def find_steps(trace: Trace) -> Trace:
    if trace.steps:
        ordered = sorted(trace.steps, key=lambda step: step.start_ns)
        return _follow_the_device(replace(trace, steps=tuple(ordered), steps_by=BY_PROFILER))
    for steps, by in ((_find_ranges(trace), BY_RANGES), (_find_updates(trace), BY_UPDATES), *_find_in_sequence(trace)):
        if steps:
            return _follow_the_device(replace(trace, steps=tuple(_with_the_rest(trace, steps)), steps_by=by))
    return trace


def _with_the_rest(trace: Trace, steps: list[HostSpan]) -> list[HostSpan]:
    """What follows the last step belongs to it unless it may be a step that the end of the recording truncated.

    It can't be one if it launches more kernels than a step has, or copies weights to the host: that is an evaluation or
    a checkpoint.
    """
    end = steps[-1].end_ns
    device_work = {kernel.correlation: 0 for kernel in trace.kernels}
    device_work |= {copy.correlation: copy.size_bytes for copy in trace.copies if copy.name == "DtoH"}
    counts = Counter[int]()
    copied = 0
    starts = [step.start_ns for step in steps]
    for call in trace.calls:
        if call.correlation in device_work:
            place = len(steps) if call.start_ns >= end else bisect.bisect_right(starts, call.start_ns) - 1
            counts[place] += device_work[call.correlation] == 0
            copied += device_work[call.correlation] if place == len(steps) else 0
    usual = median(counts[number] for number in range(len(steps)))
    if counts[len(steps)] <= usual and copied < CHECKPOINT_BYTES:
        return steps
    last = max(span.end_ns for span in (*trace.calls, *trace.ranges))
    return [*steps[:-1], replace(steps[-1], duration_ns=last - steps[-1].start_ns)]


def _follow_the_device(trace: Trace) -> Trace:
    """The steps as the device runs them: the host may have launched all of them before the first has run.

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
    """Without a first step that takes several times as long (compiling), and those that allocate unlike later ones."""
    lengths = [end - start for start, end in trace.step_intervals_ns]
    if len(lengths) < 4:
        return trace
    starts = [step.start_ns for step in trace.steps]
    taken = Counter(bisect.bisect_right(starts, c.start_ns) - 1 for c in trace.calls if _ALLOCATION.search(c.name))
    later = max(taken[number] for number in range(len(lengths) // 2, len(lengths)))
    left_out = 0
    while left_out < len(lengths) // 2 and taken[left_out] > 4 * (later + 1):
        left_out += 1
    if not left_out and lengths[0] >= _WARM_UP * median(lengths):
        left_out = 1
    if not left_out:
        return trace
    by = f"{trace.steps_by}; without {left_out} warm-up step{'' if left_out == 1 else 's'}"
    return replace(trace, steps=trace.steps[left_out:], device_steps=trace.device_steps[left_out:], steps_by=by)


def _find_ranges(trace: Trace) -> list[HostSpan]:
    """The ranges of one name (whatever its number) on one thread, at least two, the outermost of those that match."""
    named = [span for span in trace.ranges if _STEP_NAME.match(span.name) and not _NOT_A_STEP.search(span.name)]
    groups = group_by(named, lambda span: (span.thread, _DIGITS.sub("#", span.name)))
    best: list[HostSpan] = []
    for spans in groups.values():
        apart = _disjoint(sorted_spans(spans))
        if len(apart) >= 2 and sum(s.duration_ns for s in apart) > sum(s.duration_ns for s in best):
            best = apart
    return [*(replace(a, duration_ns=b.start_ns - a.start_ns) for a, b in pairwise(best)), *best[-1:]]


def _disjoint(ordered: Sequence[HostSpan]) -> list[HostSpan]:
    kept: list[HostSpan] = []
    for span in ordered:
        if not kept or span.start_ns >= kept[-1].end_ns:
            kept.append(span)
    return kept


def _find_updates(trace: Trace) -> list[HostSpan]:
    """A step ends with its update; several optimizers of one step follow each other and count once."""
    named = [span for span in trace.ranges if span.name.startswith(OPTIMIZER_RANGE)]
    updates = sorted_spans(named or (span for span in trace.ranges if _UPDATE_RANGE.match(span.name)))
    updates = _disjoint([span for span in updates if span.name == updates[0].name])
    if len(updates) < 2:
        return []
    edges = [trace.window_ns[0], *(span.end_ns for span in updates)]
    return [HostSpan(f"step {n}", a, b - a, updates[0].thread) for n, (a, b) in enumerate(pairwise(edges))]


def _find_in_sequence(trace: Trace) -> Iterator[tuple[list[HostSpan], str]]:
    """By the order of launches: streams run side by side, so the device's own order differs from step to step."""
    launched = trace.launch_times()
    work: list[Span] = [*sorted(trace.kernels, key=lambda kernel: launched.get(kernel.correlation, kernel.start_ns))]
    work = work or [*outermost(trace.ops)]
    names = [span.name for span in work]
    if trace.kernels:
        updates = _split_behind_updates(names)
        yield _build_steps(trace, work, updates if _are_alike(updates) else []), BY_UPDATE_KERNELS
        if len(updates) == 2:  # one update is one step, and what repeats in it are layers
            return
    period = find_period(names)
    whole = len(names) // period * period if period else 0
    by = BY_KERNELS if trace.kernels else BY_OPERATORS
    yield _build_steps(trace, work, [*range(0, whole + 1, period)] if period else []), by
    yield _build_steps(trace, work, _split_at_names_of_every_step(names)), by


def _build_steps(trace: Trace, work: Sequence[Span], boundaries: Sequence[int]) -> list[HostSpan]:
    """A step for each pair of boundaries.

    It begins when the host has launched the last kernel of the one before: what it then does (loading, copying) belongs
    to the next one. The first has as long a lead as the others.
    """
    if len(boundaries) < 3:
        return []
    launches = {call.correlation: call for call in trace.calls if call.correlation is not None}

    def host_span(place: int) -> tuple[int, int]:
        span = work[place]
        call = launches.get(span.correlation) if isinstance(span, KernelSpan) and span.correlation is not None else None
        return (span.start_ns, span.end_ns) if call is None else (call.start_ns, call.end_ns)

    inner = [boundary for boundary in boundaries if 0 < boundary < len(work)]
    lead = median([max(host_span(boundary)[0] - host_span(boundary - 1)[1], 0) for boundary in inner] or [0])
    start = max(round(host_span(0)[0] - lead), trace.window_ns[0])
    edges = [host_span(boundary - 1)[1] if boundary else start for boundary in boundaries]
    return [HostSpan(f"step {n}", a, b - a, "") for n, (a, b) in enumerate(pairwise(edges)) if b > a]


def _split_behind_updates(names: Sequence[str]) -> list[int]:
    """Positions after the last kernel of each update: between two updates there is a matrix product."""
    pattern = _UPDATE_KERNEL if any(_UPDATE_KERNEL.search(name) for name in set(names)) else _FOREACH_KERNEL
    is_update = {name: bool(pattern.search(name)) for name in set(names)}
    is_product = {name: bool(MATRIX_PRODUCT.search(name)) for name in set(names)}
    boundaries, last = [0], None
    for place, name in enumerate(names):
        if is_update[name]:
            last = place
        elif is_product[name] and last is not None:
            boundaries.append(last + 1)
            last = None
    if last is not None:
        boundaries.append(last + 1)
    return boundaries


def is_update_kernel(name: str) -> bool:
    return bool(_UPDATE_KERNEL.search(name) or _FOREACH_KERNEL.search(name))


def _split_at_names_of_every_step(names: Sequence[str]) -> list[int]:
    """Steps may differ (an evaluation between two, other kernels for other lengths): some names come once in each.

    The largest group of names that come equally often and always in one order; a step begins at the first of them.
    """
    places = group_by(range(len(names)), lambda place: names[place])
    by_count = group_by((name for name, where in places.items() if len(where) >= 3), lambda name: len(places[name]))
    best: list[int] = []
    most = 1  # one name alone may be anything
    for _, group in sorted(by_count.items()):
        first = places[group[0]]
        edges = [*first, len(names)]
        together = [
            n for n in group if all(a <= place < b for place, (a, b) in zip(places[n], pairwise(edges), strict=True))
        ]
        usual = median(b - a for a, b in pairwise(first))
        is_whole = max(first[0], len(names) - first[-1]) <= (1 + _ALIKE) * usual  # layers repeat only in a part of it
        if len(together) > most and is_whole and _are_alike(first):
            best, most = first, len(together)
    return best


def _are_alike(boundaries: Sequence[int]) -> bool:
    """Whether at least half of the steps have about as many kernels as the usual one."""
    sizes = [b - a for a, b in pairwise(boundaries)]
    if len(sizes) < 2:
        return False
    usual = median(sizes)
    return usual >= _SHORTEST_PERIOD and sum(abs(size - usual) <= _ALIKE * usual for size in sizes) >= len(sizes) / 2


def find_period(names: Sequence[str]) -> int | None:
    """The smallest distance at which (almost) every name comes again: 'abcabcabc' -> 3.

    Layers repeat inside a step, too, but not from its first name to its last: where the next layer is another one, or
    the backward begins, the names differ, which is more than the few that vary from step to step.
    """
    repeated = sorted((count, name) for name, count in Counter(names).items() if count >= 2)
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
