"""What every table and every finding of a trace is computed from, looked at once.

In: a `Trace`. Out: a `Diagnosis`: the trace, what the host did, what each GPU did, where the host waited.
"""

from __future__ import annotations

from dataclasses import dataclass

from seqfit.profile.gpu_time import GpuTime, measure_gpu_time
from seqfit.profile.host import COMPUTING, HostTimeline
from seqfit.profile.syncs import SyncRow, rank_syncs
from seqfit.profile.trace import Trace


@dataclass(frozen=True)
class Diagnosis:
    """A trace with what the host did, what the GPUs did, and where the host waited."""

    trace: Trace
    host: HostTimeline
    gpus: list[GpuTime]
    syncs: list[SyncRow]

    @property
    def busy_share(self) -> float:
        """Of the time: in which kernels run, on the busiest GPU; without a GPU in which operators do."""
        if self.gpus:
            return max(gpu.computing for gpu in self.gpus)
        return self.host.total(self.trace.window_ns).get(COMPUTING, 0.0)


def diagnose(trace: Trace) -> Diagnosis:
    """Look at a trace once."""
    host = HostTimeline(trace)
    return Diagnosis(trace, host, measure_gpu_time(trace, host), rank_syncs(trace))
