"""How long a step takes (roofline: arithmetic or memory traffic, whichever is longer), and how long a prediction may.

In: kernels with their FLOPs and bytes (of a tape or a template), and a device's `Rates`. Out: seconds.

    kernel          FLOPs      bytes     at 10 TFLOP/s, 1 TB/s, 5 us per launch
    mm              2e9        1e7       max(200 us, 10 us) + 5 us = 205 us
    add             -          3e7       30 us + 5 us              =  35 us

A GPU works while its host issues what follows, so of a part of a step (a micro-batch, the update) the longer counts:

    2,000 kernels of 8 us on the device, 12 us each on the host      24 ms: the device waits
    2,000 kernels of 50 us                                           100 ms: the host is ahead

Rates come from the hardware table, reduced to what kernels usually reach of it, or from a calibration on the machine
itself (`calibrate`), which is far better. The time limit is checked by the code that takes the time:

    with time_limit(3.0):
        trace ...            check_time_limit() at each of some thousand operations, and at each size of micro-batch

Tracing is Python in this process, so frequent checks are exact to a few milliseconds, and what stops has stopped: a
thread could not be ended and would keep taking the interpreter from training; a process would first import torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seqfit.hardware import Achieved, Card, load_achieved
from seqfit.planning.tape import KINDS, Tape

# FLOPs per byte from which a product's operands count as cached. T5's smallest, 512 x 512, has about 100; an adapter's
# of rank 8 has 4, and takes as long as reading its operands does.
DENSE = 16


@dataclass(frozen=True)
class Rates:
    source: str
    flops_per_second: dict[str, float]  # of products
    bytes_per_second: float
    update_bytes_per_second: float  # of the optimizer, which streams through all weights
    call_seconds: float
    step_seconds: float = 0.0  # of each step, whatever its size
    products_wait_for_memory: bool = True
    last_wave: float = 0.0  # root of FLOPs: what a product seems to have more, times the root of its own FLOPs
    host_call_seconds: float = 0.0  # to issue an operation while the device works on earlier ones
    fused_share: float = 1.0  # of the traffic between products that torch.compile leaves

    @property
    def compiled(self) -> Rates:
        """Of a compiled model: what lies between two products is one kernel, which reads and writes less."""
        return replace(
            self,
            source=f"{self.source}, compiled",
            bytes_per_second=self.bytes_per_second / self.fused_share,
            call_seconds=self.call_seconds * self.fused_share,
            host_call_seconds=self.host_call_seconds * self.fused_share,
        )

    def slowed(self, factor: float, why: str) -> Rates:
        return replace(
            self,
            source=f"{self.source}, {why}",
            flops_per_second={kind: rate / factor for kind, rate in self.flops_per_second.items()},
            bytes_per_second=self.bytes_per_second / factor,
            update_bytes_per_second=self.update_bytes_per_second / factor,
            call_seconds=self.call_seconds * factor,
            step_seconds=self.step_seconds * factor,
            host_call_seconds=self.host_call_seconds * factor,
        )


def rates_of_card(card: Card, precision: str, achieved: Achieved | None = None) -> Rates:
    """fp32 does not mean TF32, which torch leaves off for products; tf32 is for published runs that had it on."""
    achieved = load_achieved() if achieved is None else achieved
    full = achieved.product_rate(card, "tf32" if precision == "tf32" else "fp32")
    half = max(full, achieved.product_rate(card, "bf16" if precision == "bf16" else "fp16"))
    bandwidth = achieved.bandwidth(card)
    return Rates(
        source=f"data sheet of {card.name}, reduced to what kernels usually reach",
        flops_per_second={
            "product": full,
            "half product": half,
            "batched product": full * achieved.batched_share,
            "half batched product": half * achieved.batched_share,
        },
        bytes_per_second=bandwidth,
        update_bytes_per_second=bandwidth,
        call_seconds=achieved.kernel_us * 1e-6,
        last_wave=achieved.last_wave * card.multiprocessors,
        host_call_seconds=achieved.host_us * 1e-6,
        fused_share=achieved.fused_share,
    )


def sum_features(tape: Tape) -> dict[str, float]:
    """Totals of a step that a calibration fits rates to: FLOPs by kind, other bytes, calls."""
    features = dict.fromkeys((*KINDS, "calls"), 0.0)
    for kernel in tape.kernels:
        kind = tape.kind_of(kernel)
        features[kind] += kernel.bytes if kind in ("other", "update") else kernel.flops
        features["calls"] += kernel.calls
    return features


def kinds_of(tape: Tape) -> npt.NDArray[np.int64]:
    """[kernel]: its kind's place in KINDS."""
    return np.array([KINDS.index(tape.kind_of(kernel)) for kernel in tape.kernels], dtype=np.int64)


def kernel_seconds(
    flops: npt.NDArray[np.float64],
    moved_bytes: npt.NDArray[np.float64],
    calls: npt.NDArray[np.float64],
    kinds: npt.NDArray[np.int64],
    rates: Rates,
) -> npt.NDArray[np.float64]:
    """Of each kernel on the device; arrays are [kernel] or [kernel, shape]."""
    per_second = np.array([rates.flops_per_second.get(kind, np.inf) for kind in KINDS])[kinds]
    idle = np.where(_is(kinds, "product", "half product", like=flops), rates.last_wave * np.sqrt(flops * calls), 0.0)
    arithmetic = (flops + idle) / (per_second if flops.ndim == 1 else per_second[:, None])
    is_update = _is(kinds, "update", like=flops)
    traffic = moved_bytes / np.where(is_update, rates.update_bytes_per_second, rates.bytes_per_second)
    if not rates.products_wait_for_memory:
        is_thin = _is(kinds, "product", "half product", like=flops) & (flops < DENSE * moved_bytes)
        traffic = np.where(_is(kinds, "other", "update", like=flops) | is_thin, traffic, 0.0)
    seconds: npt.NDArray[np.float64] = np.maximum(arithmetic, traffic) + calls * rates.call_seconds
    return seconds


def part_seconds(
    kernels: npt.NDArray[np.float64], calls: npt.NDArray[np.float64], host_call_seconds: float
) -> npt.NDArray[np.float64]:
    """Of the kernels [kernel, shape] of a part of a step: the device's time, or the host's where it is longer."""
    seconds: npt.NDArray[np.float64] = np.maximum(kernels.sum(0), calls.sum(0) * host_call_seconds)
    return seconds


def _is(kinds: npt.NDArray[np.int64], *names: str, like: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether kernels are of some kinds, in the shape of `like`."""
    found = np.isin(kinds, [KINDS.index(name) for name in names])
    return found if like.ndim == 1 else found[:, None]


_end: float | None = None
_seconds = 0.0


class TimeLimitReached(Exception):
    """A prediction took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Code inside that calls `check_time_limit` ends after so many seconds. Limits do not nest: the inner one holds."""
    global _end, _seconds
    before = _end, _seconds
    _end, _seconds = time.monotonic() + seconds, seconds
    try:
        yield
    finally:
        _end, _seconds = before


def check_time_limit() -> None:
    """Raises where a limit is over; without a limit it does nothing."""
    if _end is not None and time.monotonic() > _end:
        raise TimeLimitReached(f"it took longer than {_seconds:g} s")
