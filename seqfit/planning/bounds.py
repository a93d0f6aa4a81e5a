"""How far off predictions were where something was measured: the range of every figure in a plan. No torch here.

In: what a figure is (memory or time, of which device). Out: an `ErrorBound`: the relative error that nine of ten
predictions of that kind stayed within, and where it was seen. A measured value lies between

    predicted / (1 + error)   and   predicted / (1 - error)        10.0 GiB, 6.2%   ->   9.4 to 10.7 GiB

New figures change one line of `BOUNDS`.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY, TIME = "memory", "time"
ONE_CARD, SEVERAL_GPUS, SOME_CPU, CALIBRATED_CPU = "one GPU", "several GPUs", "CPU", "calibrated CPU"


@dataclass(frozen=True)
class ErrorBound:
    error: float  # |predicted / measured - 1| of nine in ten
    source: str


BOUNDS = {
    (MEMORY, ONE_CARD): ErrorBound(0.062, "22 published peaks, benchmarks/published_memory"),
    (MEMORY, SEVERAL_GPUS): ErrorBound(0.09, "10 published peaks of DDP, benchmarks/published_memory"),
    (MEMORY, SOME_CPU): ErrorBound(0.017, "33 steps of small models, benchmarks/planned_memory"),
    (TIME, ONE_CARD): ErrorBound(0.212, "57 published speeds, benchmarks/published_speed"),
    (TIME, SEVERAL_GPUS): ErrorBound(0.269, "12 published speeds of DDP, benchmarks/published_speed"),
    (TIME, CALIBRATED_CPU): ErrorBound(0.142, "12 steps after a calibration, benchmarks/planned_time"),
    (TIME, SOME_CPU): ErrorBound(0.5, "assumed: the CPU is not calibrated, see seqfit plan --calibrate"),
}


def find_bound(quantity: str, device: str) -> ErrorBound:
    """Memory of a CPU does not depend on its calibration."""
    return BOUNDS.get((quantity, device)) or BOUNDS[quantity, SOME_CPU]


def find_range(predicted: float, error: float) -> tuple[float, float]:
    """Between which values the measured one lies."""
    return predicted / (1 + error), predicted / (1 - error)
