"""Findings of a trace: its causes, ranked by what a replay without each of them saves.

In: a `Diagnosis` of a trace; the rules of host_causes.py and device_causes.py. Out: findings. The gain of the first is
what its fix saves by itself; that of each following one is what it saves on top of those before it, so gains never
exceed the step:

    loading 80%, a sync 20% (the host would load while the GPU computes)
    1. waiting-for-data  80%          2. host-syncs  0% on top of that: not shown

Where kernels run for less than 85% of the time and no cause explains it, that is a finding, with what the host did.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqfit.profiling.device_causes import DEVICE_RULES
from seqfit.profiling.findings import HEALTHY, Cause, Finding
from seqfit.profiling.host import COMPUTING
from seqfit.profiling.host_causes import HOST_RULES, LAUNCH_RULES
from seqfit.profiling.readers import read_trace
from seqfit.profiling.replay import UNCHANGED, CandidateFinding, Replay, TraceContext
from seqfit.profiling.tables import IDLE_CAUSES, Diagnosis, TraceSummary, diagnose, summarise_trace
from seqfit.units import format_share

# Of two causes with equal gains the first explains the other: syncs come before the launches that follow them.
_RULES = (*HOST_RULES, *DEVICE_RULES, *LAUNCH_RULES)
_GENERAL = (Cause.LAUNCH_BOUND, Cause.PYTHON)  # what is left of the host's time without the specific causes
_WAITS = (Cause.WAITING_FOR_DATA, Cause.HOST_SYNCS, Cause.MEMORY_ALLOCATION, *_GENERAL)  # causes of an idle GPU
_TIE = 0.01  # of two gains this close, the cause that comes first in the table explains the other
_WORTH = 0.03  # of a step: a replay is exact to about one per cent of it, and less is not worth a change


@dataclass(frozen=True)
class TraceProfile:
    summary: TraceSummary
    findings: list[Finding]
    busy_share: float  # of the time, with a running kernel (on a CPU: an operator)


def profile_trace(path: Path) -> TraceProfile:
    diagnosis = diagnose(read_trace(path))
    return TraceProfile(summarise_trace(diagnosis), find_in_trace(diagnosis), diagnosis.busy_share)


def find_in_trace(diagnosis: Diagnosis) -> list[Finding]:
    """What is worth a change; empty only where the step takes as long as its kernels need."""
    trace = diagnosis.trace
    if not (trace.kernels or trace.ops):
        return []
    replay = Replay(trace, diagnosis.host)
    context = TraceContext(trace, diagnosis.host, replay, diagnosis.syncs)
    candidates = [candidate for rule in _RULES for candidate in rule(context)]
    if diagnosis.gpus and 1 - diagnosis.busy_share < _WORTH:  # a GPU that never waits gains nothing from its host
        candidates = [candidate for candidate in candidates if candidate.cause not in _WAITS]
    found = _rank(candidates, replay)
    return found if found or diagnosis.busy_share >= HEALTHY else [_unexplained(diagnosis)]


def _rank(candidates: list[CandidateFinding], replay: Replay) -> list[Finding]:
    fixed, saved = UNCHANGED, 0.0
    found: list[Finding] = []
    for candidate in _choose(candidates, replay):
        likely = candidate.likely
        gain, least, most = (
            replay.gain(fixed | change) - saved
            for change in (likely, candidate.least or likely, candidate.most or likely)
        )
        if gain >= _WORTH:
            found.append(
                Finding(
                    candidate.cause,
                    candidate.sentence,
                    candidate.advice,
                    candidate.change,
                    gain,
                    evidence=candidate.evidence,
                    is_lossy=candidate.is_lossy,
                    gain_range=(min(max(least, 0.0), gain), max(most, gain)),
                    trainer=candidate.trainer,
                )
            )
            fixed, saved = fixed | candidate.likely, saved + gain
    return found


def _choose(candidates: list[CandidateFinding], replay: Replay) -> list[CandidateFinding]:
    """Those worth a change on top of others, by what each saves by itself; a general one by what the others leave."""
    fixed, saved = UNCHANGED, 0.0
    chosen: list[tuple[float, CandidateFinding]] = []
    for is_general in (False, True):
        left = [one for one in candidates if (one.cause in _GENERAL) == is_general]
        while left:
            gains = [replay.gain(fixed | candidate.likely) - saved for candidate in left]
            place = next(n for n, gain in enumerate(gains) if gain >= max(gains) - _TIE)
            gain, candidate = gains[place], left.pop(place)
            if gain < _WORTH:
                break
            weight = gain if is_general or not chosen else min(replay.gain(candidate.likely), chosen[-1][0])
            chosen.append((weight, candidate))
            fixed, saved = fixed | candidate.likely, saved + gain
    return [candidate for _, candidate in sorted(chosen, key=lambda pair: -pair[0])]


def _unexplained(diagnosis: Diagnosis) -> Finding:
    """The step is longer than its kernels, and no rule explains it: name at least what the host did."""
    idle = 1 - diagnosis.busy_share
    if diagnosis.gpus:
        causes = max(diagnosis.gpus, key=lambda gpu: gpu.computing).causes
        what = max(IDLE_CAUSES, key=lambda cause: causes[cause])
    else:
        shares = diagnosis.host.total(diagnosis.trace.window_ns)
        what = max((name for name in shares if name != COMPUTING), key=lambda name: shares[name], default="no activity")
    return Finding(
        Cause.UNEXPLAINED,
        f"{'kernels' if diagnosis.gpus else 'operators'} run for only {format_share(1 - idle)} of the time; most of "
        f"the rest: {what}",
        "Record the trace again with with_stack=True and record_shapes=True, which shows the function that takes it",
        (),
        0.0,
        evidence={"busy_share": 1 - idle, "mostly": what},
        gain_range=(0.0, idle),
        trainer="TrainingArguments has no setting for it",
        is_guess=True,
    )
