"""How long each GPU computed, only communicated, only copied, or was idle, and what the host did meanwhile.

In: a `Trace` and its `HostTimeline`. Out: for each device the shares of the window, which add up to 1. An idle interval
is charged to what the host was doing during it (see host.py), not to what came before:

    kernel |----|                         |----|        20 of it loading data, 5 launching; that a sync ended when the
    host   [sync...]   loading 20   launch 5            interval began is no reason for it

Work that had been launched before the interval began, and did not start, is the device's own matter ("device"): a
dependency between streams, or latency.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from seqfit.profile.host import ACTIVITIES, HostTimeline
from seqfit.profile.intervals import Interval, clip, gaps, group_by, intervals_of, length, merge
from seqfit.profile.trace import Kernel, Trace

_SLACK_NS = 1000  # host and device have clocks of their own, which a profiler aligns to about a microsecond
DEVICE, NO_WORK = "device", "no work"
CAUSES = (*ACTIVITIES, DEVICE, NO_WORK)
_COLLECTIVES = ("nccl", "rccl")


@dataclass(frozen=True)
class GpuTime:
    """Shares of the window of one device."""

    device: int
    computing: float
    communicating: float  # NCCL's kernels without others
    copying: float  # without a kernel
    idle: float
    causes: dict[str, float] = field(default_factory=dict)  # of `idle`, as shares of the window


def is_collective(kernel: Kernel) -> bool:
    """Whether it exchanges data with another GPU; such a kernel also waits in it for the others."""
    return kernel.name.lower().startswith(_COLLECTIVES)


def measure_gpu_time(trace: Trace, host: HostTimeline) -> list[GpuTime]:
    """One entry for each device; none for a trace without a GPU."""
    by_device = group_by([*trace.kernels, *trace.copies], lambda item: item.device)
    return [_measure_device(device, by_device[device], trace, host) for device in sorted(by_device)]


def _measure_device(device: int, work: list[Kernel], trace: Trace, host: HostTimeline) -> GpuTime:
    window, span = trace.window_ns, trace.span_ns or 1
    kernels = [kernel for kernel in trace.kernels if kernel.device == device]
    computed = merge(clip(intervals_of(kernel for kernel in kernels if not is_collective(kernel)), window))
    ran = merge(clip(intervals_of(kernels), window))
    busy = merge(clip(intervals_of(work), window))
    causes = dict.fromkeys(CAUSES, 0.0)
    for cause, time_ns in _explain_gaps(gaps(busy, window), work, trace, host):
        causes[cause] += time_ns / span
    computing, running, covered = (length(part) / span for part in (computed, ran, busy))
    return GpuTime(device, computing, running - computing, covered - running, 1 - covered, causes)


def _explain_gaps(
    idle: Sequence[Interval], work: list[Kernel], trace: Trace, host: HostTimeline
) -> list[tuple[str, int]]:
    launches = {call.correlation: call.start_ns for call in trace.calls if call.correlation is not None}
    work = sorted(work, key=lambda item: item.start_ns)
    starts = [item.start_ns for item in work]
    explained: list[tuple[str, int]] = []
    for gap in idle:
        place = bisect.bisect_left(starts, gap[1])
        following = work[place] if place < len(work) else None
        launched = None if following is None or following.correlation is None else launches.get(following.correlation)
        if launched is not None and launched < gap[0] - _SLACK_NS:
            explained.append((DEVICE, gap[1] - gap[0]))
        elif not trace.calls and not trace.ops:
            explained.append((NO_WORK, gap[1] - gap[0]))
        else:
            explained += host.charge(gap).items()
    return explained
