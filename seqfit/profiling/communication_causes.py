"""Collectives: those that nothing overlaps, and those in which a rank waits for another one.

In: a `TraceContext`. Out: candidates `straggler` and `communication`. A collective ends on all ranks when the last one
has joined, so its length is the communication itself and the waiting:

    needed (floor)   what one of its size or larger takes, or the same one in other steps, without waiting
    waited           the rest, caused by a straggler
    exposed          of what is needed, the time in which nothing is computed: could be hidden behind the backward
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import median

from seqfit.profiling.candidate import CandidateFinding, TraceContext
from seqfit.profiling.findings import Cause
from seqfit.profiling.host import COMMUNICATING
from seqfit.profiling.replay import Change
from seqfit.profiling.tables import BACKWARD, NAMES, is_collective
from seqfit.profiling.trace import BACKWARD_PREFIX, Copy, group_by, intervals_of, merge, overlap

_HIDDEN = 0.8  # of the communication: the last bucket, with the embedding's gradient, has no backward left to hide it
_FIRST_BUCKET = 0.1  # of a backward, until there is something to communicate
_WAITED = 2.5  # a collective that takes this many times as long as it needs waits for another rank
_NOT_QUEUED_NS = 50_000
_FAR_LONGER = 8  # buckets of one name differ in size by less, except for a small one


def find_communication(context: TraceContext) -> Iterator[CandidateFinding]:
    """Collectives that nothing overlaps; what they take beyond others of their kind is waiting for another rank."""
    numbers = context.find_work(is_collective)
    if not numbers:
        share = context.shares.get(COMMUNICATING, 0.0)
        if share and not context.trace.kernels:
            removed = Change({COMMUNICATING: 0.0})
            yield _exposed(context, share, removed, Change({COMMUNICATING: 0.5}), removed, "Communicate less often")
        return
    floors = _floors(context, numbers)
    waiting = {n: floors[n] / max(context.replay.work[n].duration_ns, 1) for n in numbers}
    waited = sum(context.replay.work[n].duration_ns - floors[n] for n in numbers) / max(context.trace.span_ns, 1)
    if waited > 0.02:
        yield CandidateFinding(
            Cause.STRAGGLER,
            f"collectives take up to {max(1 / max(f, 1e-6) for f in waiting.values()):.0f} times as long as others of "
            f"their kind: this GPU waits for another one for {context.describe_share(waited)}",
            "Profile the slowest rank; balance the work of the ranks (batches by tokens); check for a slow data loader "
            "or a GPU that others use",
            ("strategy.batching=packed",),
            'train_sampling_strategy="group_by_length", a profile of every rank',
            likely=Change(work=waiting),
            least=Change(work={n: (1 + f) / 2 for n, f in waiting.items()}),
            evidence={"waiting_share": waited},
        )
    yield from _exposed_on_gpu(context, numbers, waiting if waited > 0.02 else {})


def _exposed_on_gpu(
    context: TraceContext, numbers: list[int], waiting: Mapping[int, float]
) -> Iterator[CandidateFinding]:
    """Communication itself, without waiting for others. A backward can hide no more of it than its own length."""
    others = merge(intervals_of(k for k in context.trace.kernels if not is_collective(k)))
    bare = {  # number -> time that nothing overlaps, less what is waited for
        n: waiting.get(n, 1.0) * work.duration_ns - overlap(others, (work.start_ns, work.end_ns))
        for n in numbers
        for work in (context.replay.work[n],)
    }
    bare = {n: time_ns for n, time_ns in bare.items() if time_ns > 0}
    exposed = sum(bare.values())
    overlapped = sum(overlap(others, (context.replay.work[n].start_ns, context.replay.work[n].end_ns)) for n in numbers)
    free = max(_backward_ns(context) - overlapped, 0)
    if not exposed:
        return
    hidden = min(_HIDDEN * exposed, (1 - _FIRST_BUCKET) * free)
    is_hidden_already = hidden < 0.25 * exposed
    likely = 0.5 * exposed if is_hidden_already else hidden  # half: one all-reduce for two micro-batches
    most = max(min(exposed, free), likely)

    def shorten(by_ns: float) -> Change:
        """The waiting stays: the straggler causes it, and it must not make this the larger cause."""
        return Change(
            work={n: 1 - by_ns / exposed * time_ns / context.replay.work[n].duration_ns for n, time_ns in bare.items()}
        )

    yield _exposed(
        context,
        exposed / max(context.trace.span_ns, 1),
        shorten(likely),
        shorten(likely / 2),
        shorten(most),
        "Communicate less often (gradient accumulation), or use fewer GPUs: the backward is too short to hide all of it"
        if is_hidden_already
        else "Overlap it with the backward (ddp), communicate less often (gradient accumulation), or use fewer GPUs",
    )


def _backward_ns(context: TraceContext) -> float:
    """Time of the kernels of the backward; where nothing marks them, two thirds of all: it is two products for one."""
    compute = [w for w in context.replay.work if not isinstance(w, Copy) and not is_collective(w)]
    nodes = intervals_of(op for op in context.trace.ops if op.name.startswith(BACKWARD_PREFIX))
    marked = merge([*nodes, *intervals_of(s for s in context.trace.ranges if NAMES[BACKWARD].search(s.name))])
    if not marked:
        return sum(work.duration_ns for work in compute) * 2 / 3
    launched = {call.correlation: call.start_ns for call in context.trace.calls if call.correlation is not None}
    moments = ((work, launched.get(work.correlation)) for work in compute if work.correlation is not None)
    return sum(w.duration_ns for w, moment in moments if moment is not None and overlap(marked, (moment, moment + 1)))


def _exposed(
    context: TraceContext, share: float, likely: Change, least: Change, most: Change, advice: str
) -> CandidateFinding:
    sizes = any(work.message_elements for work in context.replay.work)
    unsure = "" if sizes else "; without message sizes in the trace, waiting for a slower rank can't be ruled out"
    return CandidateFinding(
        Cause.COMMUNICATION,
        f"GPUs communicate gradients or weights for {context.describe_share(share)} while nothing is computed{unsure}",
        advice,
        ("strategy.parallel=ddp",),
        "gradient_accumulation_steps=N, ddp_bucket_cap_mb=25, ddp_static_graph=True",
        likely=likely,
        least=least,
        most=most,
        evidence={"exposed_share": share},
    )


def _floors(context: TraceContext, numbers: list[int]) -> dict[int, int]:
    """How long each collective takes without waiting for another rank.

    Where sizes are known, that is at most what the fastest of its size or larger takes. Where they are not, it is what
    the same one takes in most steps; and the first one of a step, in which an early rank waits, takes no longer than
    the others.
    """
    work = context.replay.work
    groups: dict[object, list[int]] = {}
    if all(work[n].message_elements for n in numbers):
        for n in numbers:
            groups.setdefault((work[n].device, work[n].name), []).append(n)
        return {n: floor for members in groups.values() for n, floor in _floors_by_size(context, members).items()}
    starts = [start for start, _ in context.trace.step_intervals_ns]
    by_step: dict[tuple[int, int, str], list[int]] = {}
    for n in numbers:
        step = bisect.bisect_right(starts, work[n].start_ns)
        by_step.setdefault((step, work[n].device, work[n].name), []).append(n)
    for members in by_step.values():
        for place, n in enumerate(members):
            groups.setdefault((place, work[n].device, work[n].name), []).append(n)
    floors = {n: _floor(context, n, members) for members in groups.values() for n in members}
    for members in by_step.values():
        if len(members) < 4:
            continue
        floors[members[0]] = min(floors[members[0]], _floor(context, members[0], members[1:]))
        shortest = min(work[n].duration_ns for n in members)
        for n in members:
            if _lags_behind(context, members):
                floors[n] = min(floors[n], shortest)
            rest = [m for m in members if m != n]  # and whichever is far longer than all others of its step
            if work[n].duration_ns > _FAR_LONGER * max(work[m].duration_ns for m in rest):
                floors[n] = min(floors[n], round(median(work[m].duration_ns for m in rest)))
    return floors


def _floors_by_size(context: TraceContext, alike: list[int]) -> dict[int, int]:
    """No rate is assumed, since it grows with the size: one that took longer than a larger one has waited."""
    work = context.replay.work
    floors: dict[int, int] = {}
    fastest = max(work[n].duration_ns for n in alike)
    by_size = group_by((work[n] for n in alike), lambda item: item.message_elements or 0)
    fastest_of: dict[int, int] = {}
    for size in sorted(by_size, reverse=True):
        fastest = min(fastest, *(item.duration_ns for item in by_size[size]))
        fastest_of[size] = fastest
    for n in alike:
        own, floor = work[n].duration_ns, fastest_of[work[n].message_elements or 0]
        floors[n] = floor if own > _WAITED * floor else own
    return floors


def _lags_behind(context: TraceContext, members: list[int]) -> bool:
    """Whether another rank is slower in all of a step's backward, only by the lengths of its collectives.

    Buckets of ddp are about equal, but for a smaller first one. A rank that is ahead waits in the first for all that
    the other has lost in the forward, or a little longer in each; the last one, at the end, is short again:

        17 6 6 6 6 6 6 0.6        or        4.7 5.3 5.8 6.5 7.0 7.0 7.1 0.6
    """
    work = [context.replay.work[n] for n in members]
    usual = median(item.duration_ns for item in work)
    at_once = [b.duration_ns for a, b in pairwise(work) if b.start_ns > a.end_ns + _NOT_QUEUED_NS]
    at_once.insert(0, work[0].duration_ns)
    grows = len(at_once) >= 3 and at_once[-1] > 1.15 * at_once[0] and at_once == sorted(at_once)
    return work[-1].duration_ns < usual / 3 and (work[0].duration_ns > 1.5 * usual or grows)


def _floor(context: TraceContext, number: int, alike: list[int]) -> int:
    """Its own time, unless it exceeds the usual one of its kind by far: only that is a wait."""
    usual = median(context.replay.work[n].duration_ns for n in alike)
    own = context.replay.work[number].duration_ns
    return own if own <= _WAITED * usual else round(usual)
