"""Names with their share of the time: calls of CUDA, operators of torch, kernels.

In: a `Trace`. Out: rows, the largest first. Shares are of the table's own total, as in nsys' `cuda_api_sum`:

    cudaStreamSynchronize  499 us in 1 call          share  calls  average  total
    cudaLaunchKernel       274 us in 3 calls    ->   49.9%      1   499 us  499 us  cudaStreamSynchronize
    cudaMemcpyAsync        227 us in 2 calls         27.4%      3    91 us  274 us  cudaLaunchKernel  ...

An operator's time is its own, without the operators that it calls; a kernel's is the time on the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seqfit.profile.intervals import self_times
from seqfit.profile.trace import BACKWARD_PREFIX, Trace


@dataclass(frozen=True)
class Row:
    """One name."""

    name: str
    calls: int
    total_ns: int
    share: float

    @property
    def average_ns(self) -> float:
        return self.total_ns / self.calls


def rank(times: Iterable[tuple[str, int]]) -> list[Row]:
    """One row for each name, the largest total first."""
    totals: dict[str, tuple[int, int]] = {}
    for name, time_ns in times:
        calls, total = totals.get(name, (0, 0))
        totals[name] = (calls + 1, total + time_ns)
    everything = sum(total for _, total in totals.values()) or 1
    rows = [Row(name, calls, total, total / everything) for name, (calls, total) in totals.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def rank_calls(trace: Trace) -> list[Row]:
    """The CUDA API table."""
    return rank((call.name, call.duration_ns) for call in trace.calls)


def rank_operators(trace: Trace) -> list[Row]:
    """The operator table, by self time; nodes of the backward by their own names."""
    return rank((op.name.removeprefix(BACKWARD_PREFIX), own) for op, own in self_times(trace.ops))


def rank_kernels(trace: Trace) -> list[Row]:
    """Kernels by time on the device."""
    return rank((kernel.name, kernel.duration_ns) for kernel in trace.kernels)


def rank_copies(trace: Trace) -> list[Row]:
    """Copies by kind."""
    return rank((copy.name, copy.duration_ns) for copy in trace.copies)
