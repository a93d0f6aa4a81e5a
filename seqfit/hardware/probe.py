"""What this machine has: nothing comes in, a frozen `Machine` goes out. Free of torch, and done in milliseconds.

    Machine(processor="AMD EPYC 7763", cores=8, memory_bytes=34359738368, ..., gpus=(Gpu(0, "NVIDIA A10G", ...),))

Cores and memory are what this process may use: its affinity and the limits of its container count. GPUs are all that
NVIDIA's driver has, whatever CUDA_VISIBLE_DEVICES says; where there are none, `no_gpu_reason` says why.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from seqfit.hardware.card import Card, match_card
from seqfit.hardware.cgroup import Limits, read_limits


@dataclass(frozen=True)
class Gpu:
    """One that the driver lists; `card` is its row in the table, None where the table has none."""

    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    card: Card | None


@dataclass(frozen=True)
class Driver:
    """NVIDIA's: its version, the newest CUDA it runs, its GPUs, or why there are none."""

    version: str = ""
    cuda: tuple[int, int] = (0, 0)
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Machine:
    """What this process may use. Memory is None where psutil is missing."""

    processor: str
    cores: int
    memory_bytes: int | None
    available_bytes: int | None
    is_limited: bool
    driver: Driver

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.driver.gpus

    @property
    def no_gpu_reason(self) -> str:
        """'' where there is a GPU."""
        return "" if self.gpus else self.driver.problem or "NVIDIA's driver lists no GPU"


def probe_machine() -> Machine:
    """Read /proc, the control groups and NVIDIA's driver."""
    limits = read_limits()
    cores = usable_cores(limits)
    total, available = _host_memory()
    memory_bytes, available_bytes = usable_memory(total, available, limits)
    is_limited = cores < (os.cpu_count() or 1) or memory_bytes != total
    return Machine(read_processor_name(), cores, memory_bytes, available_bytes, is_limited, read_driver())


def usable_cores(limits: Limits) -> int:
    """Whole cores: a thread more than the quota would wait for the others' time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return allowed if limits.cores is None else max(1, min(allowed, int(limits.cores)))


def usable_memory(total: int | None, available: int | None, limits: Limits) -> tuple[int | None, int | None]:
    """The host's memory, or the container's share where that is less."""
    if total is None or available is None or limits.memory_bytes is None or limits.memory_bytes >= total:
        return total, available
    return limits.memory_bytes, min(available, limits.left_bytes() or 0)


def _host_memory() -> tuple[int | None, int | None]:
    if importlib.util.find_spec("psutil") is None:
        return None, None
    import psutil

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def read_processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model as Linux names it, elsewhere what Python knows: at least the architecture."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        field, _, value = line.partition(":")
        if field.strip() == "model name":
            return " ".join(value.split())
    return platform.processor() or platform.machine()


def read_driver() -> Driver:
    """Through NVML, which answers without CUDA or torch."""
    if importlib.util.find_spec("pynvml") is None:
        return Driver(problem="nvidia-ml-py is not installed")
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(problem=str(error))
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 13020 is 13.2
        return Driver(
            version=str(pynvml.nvmlSystemGetDriverVersion()),
            cuda=(version // 1000, version % 1000 // 10),
            gpus=tuple(_read_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())),
        )
    except pynvml.NVMLError as error:
        return Driver(problem=str(error))
    finally:
        pynvml.nvmlShutdown()


def _read_gpu(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name = str(pynvml.nvmlDeviceGetName(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(index, name, int(memory.total), int(memory.used), match_card(name, int(memory.total)))
