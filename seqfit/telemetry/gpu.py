"""GPU readings through one small interface, whoever makes them: NVIDIA's library, AMD's, or a recording.

In: the ways of reading to try. Out: a reader that gives one `GpuReading` for each GPU whenever it is asked, or none and
the reason.

    reader, reason = open_gpu_reader([NvmlReader, AmdReader])
    reader.gpus          [Gpu(0, "NVIDIA GeForce RTX 3090", "GPU-5b...", 25769803776), Gpu(1, ...)]
    reader.read()        [GpuReading(gpu=0, busy_share=0.97, ...), GpuReading(gpu=1, busy_share=0.0, ...)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from seqfit.rundir.records import GpuReading


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, as its driver numbers it: CUDA may number otherwise, so the UUID tells which is which."""

    gpu: int
    name: str
    uuid: str | None
    memory_bytes: int | None


class GpuReader(Protocol):
    """Reads all GPUs of the machine."""

    gpus: list[Gpu]

    def read(self) -> list[GpuReading]:
        """One reading for each GPU, in the order of `gpus`."""
        ...

    def close(self) -> None:
        """Let go of the library."""
        ...


class NoReadings(Exception):
    """A way of reading that this machine does not have; the text says why."""


Opener = Callable[[], GpuReader]


def open_gpu_reader(openers: Sequence[Opener]) -> tuple[GpuReader | None, str]:
    """The first reader that works, or none with each one's reason."""
    reasons = []
    for opener in openers:
        try:
            return opener(), ""
        except NoReadings as reason:
            reasons.append(str(reason))
    return None, "; ".join(reasons)
