"""Where the host waited for the device, with the Python function that made it wait.

In: a `Trace`. Out: one row for each place. On a GPU a wait is a call such as cudaStreamSynchronize; on a CPU there is
nothing to wait for, but `tensor.item()` would be one on a GPU, and is shown as such. The place is the innermost Python
function on the thread that is neither built in nor torch's own (the trace must have been taken with stacks):

    seqfit/train/step_log.py(150): _finish  ->  torch/_tensor.py(70): wrapped  ->  <built-in method item>

Kineto gives the line at which the function begins, not that of the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from seqfit.profile.gpu_time import is_sync
from seqfit.profile.intervals import Nesting, in_order
from seqfit.profile.trace import HostSpan, Trace

UNKNOWN = "(no Python stacks in the trace)"
_READS = ("aten::_local_scalar_dense", "aten::is_nonzero")  # item(), float(), bool() of a tensor
_OPTIMIZER_RANGE = "Optimizer.step"
_CPU_ONLY = "seeded_dropout.py"  # draws a seed on the host, and is not used on a GPU
_FOREIGN = ("<built-in", "torch/", "<frozen", "threading.py", "nn.Module: ", "contextlib.py")


@dataclass(frozen=True)
class SyncRow:
    """One place that makes the host wait."""

    place: str  # a Python function, or a line where the capture found it
    what: str  # the call
    calls_per_step: float
    seconds_per_step: float
    caller_seconds_per_step: float  # of the whole function, once for each time that it ran


def rank_syncs(trace: Trace) -> list[SyncRow]:
    """Places by time waited, then by the number of waits."""
    callers = Nesting(span for span in trace.frames if _is_own(span.name))
    groups: dict[tuple[str, str], _Group] = {}
    for wait in _outermost(_find_waits(trace)):
        caller = callers.at(wait.thread, wait.start_ns)
        if caller is not None and _CPU_ONLY in caller.name:
            continue
        group = groups.setdefault((UNKNOWN if caller is None else shorten(caller.name), wait.name), _Group())
        group.calls += 1
        group.time_ns += wait.duration_ns
        if caller is not None:
            group.callers[caller.start_ns] = caller.duration_ns
    rows = [group.to_row(place, what, trace.step_count) for (place, what), group in groups.items()]
    return sorted(rows, key=lambda row: (-row.seconds_per_step, -row.calls_per_step, row.place))


@dataclass
class _Group:
    """The waits of one place, added up."""

    calls: int = 0
    time_ns: int = 0
    callers: dict[int, int] = field(default_factory=dict)  # start -> length: a function may wait several times

    def to_row(self, place: str, what: str, steps: int) -> SyncRow:
        seconds = 1e9 * steps
        return SyncRow(place, what, self.calls / steps, self.time_ns / seconds, sum(self.callers.values()) / seconds)


def _find_waits(trace: Trace) -> list[HostSpan]:
    """Of a CPU's trace without those of the optimizer, which counts its steps in a tensor on the host."""
    if trace.on_gpu:
        return [call for call in trace.calls if is_sync(call)]
    updates = Nesting(span for span in trace.ranges if span.name.startswith(_OPTIMIZER_RANGE))
    return [op for op in trace.ops if op.name in _READS and updates.at(op.thread, op.start_ns) is None]


def shorten(place: str) -> str:
    """The last three parts of a path: '/home/me/seqfit/train/step_log.py(9): f' -> 'seqfit/train/step_log.py(9): f'."""
    return "/".join(place.split("/")[-3:])


def _is_own(name: str) -> bool:
    return not name.startswith(_FOREIGN) and "/site-packages/" not in name


def _outermost(waits: Iterable[HostSpan]) -> list[HostSpan]:
    """Without those inside another one of the same thread: one wait is one."""
    kept: list[HostSpan] = []
    ends: dict[str, int] = {}
    for wait in in_order(waits):
        if wait.start_ns >= ends.get(wait.thread, -1):
            ends[wait.thread] = wait.end_ns
            kept.append(wait)
    return kept
