"""What this machine has: nothing comes in, a frozen `Machine` goes out. Free of torch, and done in milliseconds.

    Machine(processor="AMD EPYC 7763", cores=8, memory_bytes=34359738368, ..., gpus=(Gpu(0, "NVIDIA A10G", ...),))

Cores and memory are what this process may use: its affinity and the limits of its container count. GPUs are those of
NVIDIA's driver that CUDA shows this process, in CUDA's order (visible.py): the first is torch's cuda:0. A slice of one
(MIG) has its own memory. Where there are none, `no_gpu_reason` says why.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit import system
from seqfit.hardware.card import Card, match_card
from seqfit.hardware.cgroup import Limits, read_limits
from seqfit.hardware.visible import Listed, Place, find_visible


@dataclass(frozen=True)
class Gpu:
    """One that CUDA shows; `card` is its row in the table, None where the table has none, as of a slice."""

    index: int  # in NVML's list
    name: str
    memory_bytes: int
    used_bytes: int  # by any process, and by the driver
    card: Card | None
    uuid: str = ""

    @property
    def free_bytes(self) -> int:
        return max(0, self.memory_bytes - self.used_bytes)


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
    allowed = system.usable_cores()
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
        lines = cpuinfo.read_text("utf-8", errors="replace").splitlines()
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
        listed = [_list_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
        gpus = tuple(_read_gpu(place) for place in find_visible(listed, os.environ))
        return Driver(
            version=str(pynvml.nvmlSystemGetDriverVersion()),
            cuda=(version // 1000, version % 1000 // 10),
            gpus=gpus,
            problem=_explain_hidden(len(listed)) if listed and not gpus else "",
        )
    except pynvml.NVMLError as error:
        return Driver(problem=str(error))
    finally:
        pynvml.nvmlShutdown()


def _explain_hidden(count: int) -> str:
    hidden = "the GPU" if count == 1 else f"all {count} GPUs"
    return f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r} hides {hidden} of NVIDIA's driver"


def _list_gpu(index: int) -> Listed:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    cores = _ask(pynvml, pynvml.nvmlDeviceGetNumGpuCores, handle) or 0
    clock = _ask(pynvml, pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM) or 0
    pci = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return Listed(
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        pci=pci.decode() if isinstance(pci, bytes) else str(pci),
        speed=float(cores * clock),
        slices=tuple(str(pynvml.nvmlDeviceGetUUID(part)) for part in list_slices(pynvml, handle)),
    )


def list_slices(nvml: Any, handle: Any) -> list[Any]:
    """NVML's handles of a GPU's MIG devices; none where it is not divided."""
    mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        return []
    count = _ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found = [_ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number) for number in range(count)]
    return [part for part in found if part is not None]


def _ask(nvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """None where the GPU or the driver has no answer."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _read_gpu(place: Place) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(place.gpu)
    if place.slice is not None:
        handle = list_slices(pynvml, handle)[place.slice]
    name = str(pynvml.nvmlDeviceGetName(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    total = int(memory.total)
    card = None if place.slice is not None else match_card(name, total)
    return Gpu(place.gpu, name, total, int(memory.used), card, str(pynvml.nvmlDeviceGetUUID(handle)))
