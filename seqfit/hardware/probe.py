"""What this machine has: cores, memory, and the GPUs that CUDA shows this process. Free of torch; takes milliseconds.

    Machine(processor="AMD EPYC 7763", cores=8, memory_bytes=34359738368, ..., gpus=(Gpu(0, "NVIDIA A10G", ...),))

Cores and memory are what this process may use: its affinity and the limits of its container count. GPUs are in CUDA's
order: the first is torch's cuda:0. Where there are none, `no_gpu_reason` says why. `find_visible` finds that order from
NVML's list, CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER:

    the driver lists                 0 T4, 1 A100
    neither variable set             1, 0       CUDA's default order is FASTEST_FIRST
    CUDA_DEVICE_ORDER=PCI_BUS_ID     0, 1
    CUDA_VISIBLE_DEVICES=1           0          numbers count in CUDA's order
    CUDA_VISIBLE_DEVICES=GPU-5b7c    the one whose UUID begins so
    CUDA_VISIBLE_DEVICES=0,7,1       1          an entry that names no GPU ends the list; a repeated one empties it

A GPU in MIG mode is divided into slices with memory of their own; CUDA shows a process one slice and no other GPU. How
CUDA ranks speed is not documented: here it is cores times the highest clock, which can only be wrong between models.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit import system
from seqfit.hardware.cards import Card, match_card
from seqfit.hardware.process_memory import MemoryLimits, read_limits


@dataclass(frozen=True)
class NvmlGpu:
    """A GPU as NVML lists it; `slices` are the UUIDs of its MIG devices."""

    uuid: str
    pci: str
    speed: float
    slices: tuple[str, ...] = ()


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU, or one of its MIG slices."""

    gpu: int
    slice: int | None = None


def find_visible(listed: Sequence[NvmlGpu], environment: Mapping[str, str]) -> list[VisibleGpu]:
    order = sorted(range(len(listed)), key=lambda place: listed[place].pci)
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        order.sort(key=lambda place: -listed[place].speed)
    named = environment.get("CUDA_VISIBLE_DEVICES")
    places = [VisibleGpu(gpu) for gpu in order] if named is None else _read_names(named, listed, order)
    sliced = [place for place in places if listed[place.gpu].slices]
    if not sliced:
        return places
    first = sliced[0]
    return [first if first.slice is not None else VisibleGpu(first.gpu, 0)]


def _read_names(named: str, listed: Sequence[NvmlGpu], order: Sequence[int]) -> list[VisibleGpu]:
    places: list[VisibleGpu] = []
    for name in named.split(","):
        place = _find(name.strip(), listed, order)
        if place is None:
            break
        if place in places:
            return []
        places.append(place)
    return places


def _find(name: str, listed: Sequence[NvmlGpu], order: Sequence[int]) -> VisibleGpu | None:
    if name.startswith("GPU-"):
        return _only([VisibleGpu(gpu) for gpu in order if listed[gpu].uuid.startswith(name)])
    if name.startswith("MIG-"):
        slices = [VisibleGpu(gpu, number) for gpu in order for number in range(len(listed[gpu].slices))]
        return _only([place for place in slices if listed[place.gpu].slices[place.slice or 0].startswith(name)])
    number = re.match(r"\+?\d+", name)  # as strtoul reads: '1gpu' is 1
    if number is None or int(number[0]) >= len(order):
        return None
    return VisibleGpu(order[int(number[0])])


def _only(places: list[VisibleGpu]) -> VisibleGpu | None:
    return places[0] if len(places) == 1 else None


@dataclass(frozen=True)
class Gpu:
    """A GPU that CUDA shows; `card` is its row in the table of GPUs, None where it has none or is a slice."""

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
    """NVIDIA's driver: version, newest CUDA it runs, GPUs, or why there are none."""

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
    limits = read_limits()
    cores = allowed_cores(limits)
    total, available = _host_memory()
    memory_bytes, available_bytes = usable_memory(total, available, limits)
    is_limited = cores < (os.cpu_count() or 1) or memory_bytes != total
    return Machine(read_processor_name(), cores, memory_bytes, available_bytes, is_limited, read_driver())


def allowed_cores(limits: MemoryLimits) -> int:
    """Whole cores: a thread beyond the quota would wait for time of the others."""
    allowed = system.usable_cores()
    return allowed if limits.cores is None else max(1, min(allowed, int(limits.cores)))


def usable_memory(total: int | None, available: int | None, limits: MemoryLimits) -> tuple[int | None, int | None]:
    """The host's memory, or the container's limit where that is lower."""
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
    """The model as Linux names it; elsewhere what Python knows, at least the architecture."""
    try:
        text = cpuinfo.read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^\s*model name\s*:(.*)", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def read_driver() -> Driver:
    """By NVML, which needs neither CUDA nor torch."""
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


def _list_gpu(index: int) -> NvmlGpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    cores = _query(pynvml, pynvml.nvmlDeviceGetNumGpuCores, handle) or 0
    clock = _query(pynvml, pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM) or 0
    pci = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return NvmlGpu(
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        pci=pci.decode() if isinstance(pci, bytes) else str(pci),
        speed=float(cores * clock),
        slices=tuple(str(pynvml.nvmlDeviceGetUUID(part)) for part in list_slices(pynvml, handle)),
    )


def list_slices(nvml: Any, handle: Any) -> list[Any]:
    """NVML's handles of a GPU's MIG devices; empty where it is not divided."""
    mode = _query(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        return []
    count = _query(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found = [_query(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number) for number in range(count)]
    return [part for part in found if part is not None]


def _query(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """None where the GPU or the driver does not support it."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _read_gpu(place: VisibleGpu) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(place.gpu)
    if place.slice is not None:
        handle = list_slices(pynvml, handle)[place.slice]
    name = str(pynvml.nvmlDeviceGetName(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    total = int(memory.total)
    card = None if place.slice is not None else match_card(name, total)
    return Gpu(place.gpu, name, total, int(memory.used), card, str(pynvml.nvmlDeviceGetUUID(handle)))
