"""How long each GPU computed, only copied, or was idle, and why it was idle.

In: a `Trace`. Out: for each device the shares of the window, which add up to 1. An idle gap is put down to

    data wait      the loop waited for its next batch meanwhile (only that part of the gap)
    host sync      the host was waiting for the device when the gap began, so nothing new was queued
    launch         the kernel that ends the gap was launched only after the gap had begun: the host is too slow
    device         it was launched before: the device had work and was not ready (dependencies, latency)
    no work        nothing follows, or nothing is known of what follows

    kernel |----|        |----|         a sync that ends at the arrow makes the whole gap its own:
    host   [sync...]^ launch            the next launch could not come before it
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from seqfit.profile.intervals import Interval, clip, gaps, group_by, intervals_of, length, merge, overlap
from seqfit.profile.trace import DATA_WAIT, Call, Kernel, Trace

_SLACK_NS = 1000  # host and device have clocks of their own, which a profiler aligns to about a microsecond
CAUSES = ("data wait", "host sync", "launch", "device", "no work")
_SYNC_CALLS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "hipStreamSynchronize",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
)
_WAIT_PREFIXES = (DATA_WAIT, "enumerate(DataLoader)")  # ours, and that of torch's own loader


@dataclass(frozen=True)
class GpuTime:
    """Shares of the window of one device."""

    device: int
    computing: float
    copying: float  # without a kernel beside it
    idle: float
    causes: dict[str, float] = field(default_factory=dict)  # of `idle`, as shares of the window


def is_sync(call: Call) -> bool:
    """Whether the host waits for the device in it."""
    return call.name in _SYNC_CALLS


def measure_gpu_time(trace: Trace) -> list[GpuTime]:
    """One entry for each device; none for a trace without a GPU."""
    work: list[Kernel] = [*trace.kernels, *trace.copies]
    by_device = group_by(work, lambda item: item.device)
    return [_measure_device(device, by_device[device], trace) for device in sorted(by_device)]


def _measure_device(device: int, work: list[Kernel], trace: Trace) -> GpuTime:
    window = trace.window_ns
    span = trace.span_ns or 1
    kernels = merge(clip(intervals_of(kernel for kernel in trace.kernels if kernel.device == device), window))
    busy = merge(clip(intervals_of(work), window))
    computing, covered = length(kernels) / span, length(busy) / span
    causes = dict.fromkeys(CAUSES, 0.0)
    for cause, time_ns in _explain_gaps(gaps(busy, window), work, trace):
        causes[cause] += time_ns / span
    return GpuTime(device, computing, covered - computing, 1 - covered, causes)


def _explain_gaps(idle: Sequence[Interval], work: list[Kernel], trace: Trace) -> list[tuple[str, int]]:
    waits = merge(intervals_of(span for span in trace.ranges if span.name.startswith(_WAIT_PREFIXES)))
    syncs = merge(intervals_of(call for call in trace.calls if is_sync(call)))
    launches = {call.correlation: call.start_ns for call in trace.calls}
    work = sorted(work, key=lambda item: item.start_ns)
    starts = [item.start_ns for item in work]
    explained = []
    for gap in idle:
        waiting = overlap(waits, gap)
        place = bisect.bisect_left(starts, gap[1])
        following = work[place] if place < len(work) else None
        explained += [("data wait", waiting), (_cause(gap, following, syncs, launches), gap[1] - gap[0] - waiting)]
    return explained


def _cause(gap: Interval, following: Kernel | None, syncs: list[Interval], launches: dict[int | None, int]) -> str:
    if following is None:
        return "no work"
    if overlap(syncs, (gap[0] - _SLACK_NS, gap[0] + 1)):
        return "host sync"
    launched = launches.get(following.correlation)
    if following.correlation is None or launched is None:
        return "no work"
    return "launch" if launched >= gap[0] else "device"
