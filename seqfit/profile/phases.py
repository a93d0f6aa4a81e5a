"""Which phase of a step a moment lies in, and how the time divides among phases, in anybody's trace.

In: a `Trace`. Out: `forward`, `backward`, `optimizer` or `outside` for a moment of the host, and shares of the time. By
the ranges of modules and phases where we recorded the trace; else by torch's own marks:

    optimizer   inside Optimizer.step#AdamW.step, or a range named optimizer
    backward    inside autograd::engine::evaluate_function: MmBackward0, or a range named backward
    forward     inside any other operator or module, unless a batch is being loaded, or a range named forward

On a GPU a kernel counts for the phase in which it was launched, and shares are of the device's time.
"""

from __future__ import annotations

import bisect
import re

from seqfit.profile.host import LOADING, HostTimeline
from seqfit.profile.intervals import Interval, between, intervals_of, length, merge
from seqfit.profile.trace import BACKWARD_PREFIX, MODULE_PREFIX, OPTIMIZER_RANGE, Trace

FORWARD, BACKWARD, OPTIMIZER, OUTSIDE = "forward", "backward", "optimizer", "outside"
NAMES = {
    OPTIMIZER: re.compile(rf"^{re.escape(OPTIMIZER_RANGE)}|(^|[\s_.:/#-])(optimizer|optim|update)([\s_.:/#-]|$)", re.I),
    BACKWARD: re.compile(r"(^|[\s_.:/#-])(backward|bwd)([\s_.:/#-]|$)", re.I),
    FORWARD: re.compile(r"(^|[\s_.:/#-])(forward|fwd)([\s_.:/#-]|$)", re.I),
}


class Phases:
    """The phase of any moment."""

    def __init__(self, trace: Trace, host: HostTimeline) -> None:
        ranges = [span for span in trace.ranges if not span.name.startswith(MODULE_PREFIX)]
        named = {name: intervals_of(s for s in ranges if pattern.search(s.name)) for name, pattern in NAMES.items()}
        nodes = intervals_of(op for op in trace.ops if op.name.startswith(BACKWARD_PREFIX))
        modules = intervals_of(span for span in trace.ranges if span.name.startswith(MODULE_PREFIX))
        operators = [] if modules or named[FORWARD] else intervals_of(trace.ops)
        self._loading = merge(host.when(LOADING, trace.window_ns))
        # In this order: recompute runs a forward inside the backward.
        self._phases: list[tuple[str, list[Interval]]] = [
            (OPTIMIZER, merge(named[OPTIMIZER])),
            (BACKWARD, merge([*nodes, *named[BACKWARD]])),
            (FORWARD, merge([*modules, *named[FORWARD], *operators])),
        ]

    @property
    def are_known(self) -> bool:
        """Whether the trace says where a forward ends and a backward begins."""
        return all(intervals for _, intervals in self._phases[1:])

    def at(self, moment_ns: int) -> str:
        if _holds(self._loading, moment_ns):
            return OUTSIDE
        return next((phase for phase, intervals in self._phases if _holds(intervals, moment_ns)), OUTSIDE)

    def time_in(self, phase: str, window: Interval) -> list[Interval]:
        """The phase's intervals on the host, as they are marked."""
        return between(dict(self._phases)[phase], window)


def measure_phases(trace: Trace, phases: Phases, host: HostTimeline) -> dict[str, float]:
    """Shares of the time; empty where the trace does not mark them."""
    span = trace.span_ns
    if not span or not phases.are_known:
        return {}
    if trace.kernels:
        return _measure_kernels(trace, phases)
    shares: dict[str, float] = {}
    covered: list[Interval] = list(host.when(LOADING, trace.window_ns))
    for phase in (OPTIMIZER, BACKWARD, FORWARD):
        before = length(merge(covered))
        covered = merge([*covered, *phases.time_in(phase, trace.window_ns)])
        shares[phase] = (length(covered) - before) / span
    loading = host.total(trace.window_ns).get(LOADING, 0.0)
    return {LOADING: loading, FORWARD: shares[FORWARD], BACKWARD: shares[BACKWARD], OPTIMIZER: shares[OPTIMIZER]}


def _measure_kernels(trace: Trace, phases: Phases) -> dict[str, float]:
    launched = {call.correlation: call.start_ns for call in trace.calls if call.correlation is not None}
    by_phase: dict[str, list[Interval]] = {FORWARD: [], BACKWARD: [], OPTIMIZER: []}
    for kernel in trace.kernels:
        moment = launched.get(kernel.correlation) if kernel.correlation is not None else None
        phase = OUTSIDE if moment is None else phases.at(moment)
        if phase != OUTSIDE:
            by_phase[phase].append((kernel.start_ns, kernel.end_ns))
    devices = len({kernel.device for kernel in trace.kernels}) or 1
    return {
        phase: length(between(merge(intervals), trace.window_ns)) / trace.span_ns / devices
        for phase, intervals in by_phase.items()
    }


def _holds(merged: list[Interval], moment_ns: int) -> bool:
    place = bisect.bisect_right(merged, (moment_ns, float("inf"))) - 1
    return place >= 0 and moment_ns < merged[place][1]
