"""Evaluations and checkpoints that no range and no Python function names, by what they run between two steps.

In: a `TraceContext`. Out: one `Pause` for each, with the calls that would not be there without it. A step that launches
more than the usual one is aligned with it; what remains before or after is examined:

    usual step     copy embed gemm softmax loss d_loss d_gemm adam
    this one       copy embed gemm softmax loss copy embed gemm softmax loss copy embed gemm ... d_gemm adam
                   |------- forward, and nothing of a backward or an update -------|  ->  an evaluation
    or             DtoH DtoH DtoH (400 MiB), 2 s in which nothing is launched, copy embed gemm ... adam
                   |---------------- weights copied to the host ------------|        ->  a checkpoint

That a step is long is no evidence: it may have waited for a batch or for another rank.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass
from statistics import median

from seqfit.profiling.candidate import TraceContext
from seqfit.profiling.findings import Cause
from seqfit.profiling.steps import CHECKPOINT_BYTES, MATRIX_PRODUCT
from seqfit.profiling.trace import Copy

_SAME = 0.9  # of the names that have to be those of the usual step
_LEFT_OUT = 0.25  # of a step's kernels: its backward and update, which an evaluation does not have


@dataclass(frozen=True)
class Pause:
    cause: Cause
    calls: dict[int, float]  # number of a call -> what is left of it and of the time before it: 0, or the usual time
    seen_by: str


@dataclass(frozen=True)
class _Launches:
    """The calls of one step that start something, and the names of what they start."""

    calls: list[int]
    names: list[str]


def find_pauses(context: TraceContext) -> list[Pause]:
    """None where there are too few steps to know a usual one."""
    steps = _list_launches(context)
    if len(steps) < 3:
        return []
    usual = sorted(steps, key=lambda step: len(step.calls))[(len(steps) - 1) // 2]
    count = len(usual.calls)
    if count < 4:
        return []
    resumes: list[int] = []  # the first call of a step, or of what is left of it without the pause
    extras: list[tuple[list[int], int]] = []
    for number, step in enumerate(steps):
        is_last = number + 1 == len(steps) or not steps[number + 1].calls
        following = len(context.replay.calls) if is_last else steps[number + 1].calls[0]  # the end counts as a call
        place = _align(step.names, usual.names)
        if len(step.calls) <= count or place is None:
            resumes += step.calls[:1]
        elif place:  # the pause comes first
            extras.append((step.calls[:place], step.calls[place]))
        else:
            extras.append((step.calls[count:], following))
    later = {after for _, after in extras}
    lead = median([context.replay.time_before(call) for call in resumes if call not in later] or [0])
    return [pause for calls, after in extras if (pause := _explain(context, usual, calls, after, lead)) is not None]


def _list_launches(context: TraceContext) -> list[_Launches]:
    starts = [step.start_ns for step in context.trace.steps]
    started: dict[int, str] = {}
    for work in context.replay.work:
        if work.correlation is not None:
            started.setdefault(work.correlation, work.name)
    steps = [_Launches([], []) for _ in starts]
    for number, call in enumerate(context.replay.calls):
        place = bisect.bisect_right(starts, call.start_ns) - 1
        if place >= 0 and call.correlation is not None and call.correlation in started:
            steps[place].calls.append(number)
            steps[place].names.append(started[call.correlation])
    return steps


def _align(names: list[str], usual: list[str]) -> int | None:
    """Where in a longer step the usual one begins, at its start or its end; None where it is of another kind."""
    wanted, last = Counter(usual), len(names) - len(usual)
    equal = {p: (Counter(names[p : p + len(usual)]) & wanted).total() for p in (0, last) if p >= 0}
    best = max(equal, key=lambda place: equal[place], default=0)
    return best if equal and equal[best] >= _SAME * len(usual) else None


def _explain(context: TraceContext, usual: _Launches, launches: list[int], after: int, lead_ns: float) -> Pause | None:
    """With all calls from the first of them to the last, such as syncs, and what of the following pause is too long."""
    work = [context.replay.work[number] for number in sorted(context.work_by(launches))]
    names = Counter(item.name for item in work if not isinstance(item, Copy))
    calls = dict.fromkeys(range(launches[0], after), 0.0)
    calls[after] = min(lead_ns / max(context.replay.time_before(after), 1), 1.0)
    kernels = Counter(name for name in usual.names if not name.endswith(("HtoD", "DtoH", "memset")))
    missing = sum(count for name, count in kernels.items() if name not in names)
    if any(MATRIX_PRODUCT.search(name) for name in names) and missing >= _LEFT_OUT * kernels.total():
        return Pause(Cause.EVALUATION, calls, "kernels of a forward, but none of a backward or an update")
    copied = sum(item.size_bytes for item in work if isinstance(item, Copy) and item.name == "DtoH")
    if copied >= CHECKPOINT_BYTES and not any(MATRIX_PRODUCT.search(name) for name in names):
        return Pause(Cause.CHECKPOINT, calls, "weights are copied to the host")
    return None
