"""Host syncs: where the host waited for the device, with the Python function that made it wait.

In: a `Trace`. Out: one row for each place. On a GPU a sync is a call such as cudaStreamSynchronize; on a CPU there is
nothing to wait for, but `tensor.item()` would be one on a GPU, and is shown as such. The place is the innermost Python
function on the thread that is neither built in nor torch's own (which needs a trace with stacks):

    seqfit/training/log.py(150): _finish  ->  torch/_tensor.py(70): wrapped  ->  <built-in method item>

Kineto gives the line at which the function begins, not that of the call.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from itertools import islice, takewhile

from seqfit.profiling.host import is_own, is_sync, shorten
from seqfit.profiling.trace import (
    OPTIMIZER_RANGE,
    HostSpan,
    Nesting,
    Trace,
    between,
    intervals_of,
    length,
    merge,
    outermost,
    sorted_spans,
)

UNKNOWN = "(no Python stacks in the trace)"
_READS = ("aten::_local_scalar_dense", "aten::is_nonzero")  # item(), float(), bool() of a tensor
_CPU_ONLY = "kernels/dropout_norm.py"  # draws a seed on the host, and is not used on a GPU
_OF_TENSORS = re.compile(r"^<built-in method \w+ of (Tensor|type|Parameter) object")  # tensor.mean(), torch.norm()


@dataclass(frozen=True)
class SyncRow:
    place: str  # a Python function, or a line where the capture found it
    what: str  # the call
    calls_per_step: float
    seconds_per_step: float
    caller_seconds_per_step: float  # of the function: itself and what it calls that is built in, such as tensor.mean()


def rank_syncs(trace: Trace) -> list[SyncRow]:
    """Places by time, then by the number of syncs."""
    callers = Nesting(span for span in trace.frames if is_own(span.name))
    own_work = _OwnWork(trace)
    groups: dict[tuple[str, str], _Group] = {}
    for wait in outermost(_find_waits(trace)):
        caller = callers.at(wait.thread, wait.start_ns)
        if caller is not None and _CPU_ONLY in caller.name:
            continue
        group = groups.setdefault((UNKNOWN if caller is None else shorten(caller.name), wait.name), _Group())
        group.calls += 1
        group.time_ns += wait.duration_ns
        if caller is not None:
            group.callers[caller.start_ns] = own_work.of(caller)
    rows = [group.to_row(place, what, trace.step_count) for (place, what), group in groups.items()]
    return sorted(rows, key=lambda row: (-row.seconds_per_step, -row.calls_per_step, row.place))


@dataclass
class _Group:
    calls: int = 0
    time_ns: int = 0
    callers: dict[int, int] = field(default_factory=dict)  # start -> time: a function may wait several times

    def to_row(self, place: str, what: str, steps: int) -> SyncRow:
        seconds = 1e9 * steps
        return SyncRow(place, what, self.calls / steps, self.time_ns / seconds, sum(self.callers.values()) / seconds)


def _find_waits(trace: Trace) -> list[HostSpan]:
    """In a CPU's trace without those of the optimizer, which counts its steps in a tensor on the host."""
    if trace.on_gpu:
        return [call for call in trace.calls if is_sync(call)]
    updates = Nesting(span for span in trace.ranges if span.name.startswith(OPTIMIZER_RANGE))
    return [op for op in trace.ops if op.name in _READS and updates.at(op.thread, op.start_ns) is None]


class _OwnWork:
    """What a function does itself: without the functions, modules and backward that it calls.

    A script's main() that reads the loss is not the cost of reading; a hook that computes statistics to read them is.
    """

    def __init__(self, trace: Trace) -> None:
        self._calls: dict[str, list[HostSpan]] = {}
        for frame in sorted_spans(trace.frames):
            self._calls.setdefault(frame.thread, []).append(frame)

    def of(self, caller: HostSpan) -> int:
        """Nanoseconds: its length less that of what it calls, built-in methods of tensors excepted."""
        frames = self._calls.get(caller.thread, [])
        order = (caller.start_ns, -caller.duration_ns)
        first = bisect.bisect_right(frames, order, key=lambda frame: (frame.start_ns, -frame.duration_ns))
        inside = takewhile(lambda frame: frame.start_ns < caller.end_ns, islice(frames, first, None))
        called = merge(intervals_of(f for f in inside if not _OF_TENSORS.match(f.name)))
        return caller.duration_ns - length(between(called, (caller.start_ns, caller.end_ns)))
