"""What this machine has, and which GPUs CUDA shows."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from seqfit.hardware import probe
from seqfit.hardware.probe import (
    NvmlGpu,
    VisibleGpu,
    allowed_cores,
    find_visible,
    probe_machine,
    read_driver,
    read_processor_name,
    usable_memory,
)
from seqfit.hardware.process_memory import MemoryLimits

GIB, MIB = 1024**3, 1024**2


class FakeNvml:
    """As much of pynvml as is used, with two GPUs; `broken` makes that call fail, `divided` has two MIG slices."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, broken: str = "", divided: int | None = None) -> None:
        self.broken = broken
        self.divided = divided
        self.shut_down = 0

    def _call(self, name: str, answer: object = None) -> object:
        if name == self.broken:
            raise self.NVMLError(f"{name} failed")
        return answer

    def nvmlInit(self) -> None:
        self._call("nvmlInit")

    def nvmlShutdown(self) -> None:
        self.shut_down += 1

    def nvmlSystemGetCudaDriverVersion_v2(self) -> object:
        return self._call("nvmlSystemGetCudaDriverVersion_v2", 13020)

    def nvmlSystemGetDriverVersion(self) -> object:
        return "595.10"

    def nvmlDeviceGetCount(self) -> object:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        return self._call("nvmlDeviceGetHandleByIndex", index)

    def nvmlDeviceGetName(self, handle: object) -> object:
        return {0: "NVIDIA A10G", 1: "NVIDIA Future 9000"}.get(handle, "NVIDIA A10G MIG 1g.5gb")  # type: ignore[call-overload]

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> object:
        return SimpleNamespace(total=23028 * MIB if isinstance(handle, int) else 5000 * MIB, used=512 * MIB)

    def nvmlDeviceGetUUID(self, handle: object) -> object:
        return f"GPU-{handle}" if isinstance(handle, int) else f"MIG-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> object:
        return SimpleNamespace(busId=f"00000000:0{handle}:00.0".encode())

    def nvmlDeviceGetNumGpuCores(self, handle: int) -> object:
        return self._call("nvmlDeviceGetNumGpuCores", 9216)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> object:
        return 1710

    def nvmlDeviceGetMigMode(self, handle: int) -> object:
        if handle != self.divided:
            raise self.NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> object:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> object:
        if index >= 2:
            raise self.NVMLError("Not Found")
        return "ab"[index]


def install(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_this_machine_has_cores_and_memory() -> None:
    machine = probe_machine()
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert machine.processor
    assert machine.memory_bytes is not None
    assert machine.available_bytes is not None
    assert 0 < machine.available_bytes < machine.memory_bytes
    assert bool(machine.gpus) != bool(machine.no_gpu_reason)


def test_gpus_come_with_their_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    install(nvml, monkeypatch)
    driver = read_driver()
    assert (driver.version, driver.cuda, driver.problem) == ("595.10", (13, 2), "")
    known, unknown = driver.gpus
    assert known.card is not None
    assert (known.card.key, known.memory_bytes, known.used_bytes) == ("a10g", 23028 * MIB, 512 * MIB)
    assert (unknown.index, unknown.name, unknown.card) == (1, "NVIDIA Future 9000", None)
    assert nvml.shut_down == 1


def test_the_first_gpu_is_the_first_that_cuda_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    install(FakeNvml(), monkeypatch, CUDA_VISIBLE_DEVICES="1")
    (gpu,) = read_driver().gpus
    assert (gpu.index, gpu.name, gpu.uuid, gpu.free_bytes) == (1, "NVIDIA Future 9000", "GPU-1", 22516 * MIB)


def test_gpus_that_are_hidden_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    install(FakeNvml(), monkeypatch, CUDA_VISIBLE_DEVICES="")
    assert probe_machine().no_gpu_reason == "CUDA_VISIBLE_DEVICES='' hides all 2 GPUs of NVIDIA's driver"


def test_a_slice_has_its_own_memory_and_is_not_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    install(FakeNvml(divided=0), monkeypatch, CUDA_VISIBLE_DEVICES="MIG-b")
    (gpu,) = read_driver().gpus
    assert (gpu.name, gpu.uuid, gpu.memory_bytes, gpu.card) == ("NVIDIA A10G MIG 1g.5gb", "MIG-b", 5000 * MIB, None)


def test_a_driver_that_does_not_report_cores_keeps_the_order_of_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    install(FakeNvml(broken="nvmlDeviceGetNumGpuCores"), monkeypatch)
    assert [gpu.index for gpu in read_driver().gpus] == [0, 1]


@pytest.mark.parametrize(
    ("call", "shut_down"),
    [("nvmlInit", 0), ("nvmlSystemGetCudaDriverVersion_v2", 1), ("nvmlDeviceGetHandleByIndex", 1)],
)
def test_a_driver_that_fails_is_a_reason(call: str, shut_down: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(broken=call)
    install(nvml, monkeypatch)
    assert probe_machine().no_gpu_reason == f"{call} failed"
    assert nvml.shut_down == shut_down


def test_a_missing_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    machine = probe_machine()
    assert machine.no_gpu_reason == "nvidia-ml-py is not installed"
    assert (machine.memory_bytes, machine.available_bytes) == (None, None)


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (8.0, 4), (2.0, 2), (2.7, 2), (0.5, 1)])
def test_a_quota_leaves_whole_cores(quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    assert allowed_cores(MemoryLimits(cores=quota)) == cores


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (MemoryLimits(), (64 * GIB, 40 * GIB)),
        (MemoryLimits(memory_bytes=100 * GIB), (64 * GIB, 40 * GIB)),
        (MemoryLimits(memory_bytes=8 * GIB, used_bytes=3 * GIB), (8 * GIB, 5 * GIB)),
        (MemoryLimits(memory_bytes=50 * GIB, used_bytes=3 * GIB), (50 * GIB, 40 * GIB)),
        (MemoryLimits(memory_bytes=8 * GIB, used_bytes=9 * GIB), (8 * GIB, 0)),
    ],
)
def test_a_container_has_its_share_of_the_memory(limits: MemoryLimits, expected: tuple[int, int]) -> None:
    assert usable_memory(64 * GIB, 40 * GIB, limits) == expected


def test_a_limit_shows_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "read_limits", lambda: MemoryLimits(memory_bytes=GIB, used_bytes=0))
    machine = probe_machine()
    assert (machine.memory_bytes, machine.is_limited) == (GIB, True)


def test_the_processor_is_named_as_linux_names_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC  7763\nmodel name\t: other\n")
    assert read_processor_name(tmp_path / "cpuinfo") == "AMD EPYC 7763"
    assert read_processor_name(tmp_path / "missing")


T4 = NvmlGpu("GPU-aa11", "00000000:03:00.0", speed=2560 * 1590)
A100 = NvmlGpu("GPU-ab22", "00000000:07:00.0", speed=6912 * 1410)
SLICED = NvmlGpu("GPU-cc33", "00000000:0B:00.0", 6912 * 1410, ("MIG-d1", "MIG-d2"))


@pytest.mark.parametrize(
    ("visible", "order", "places"),
    [
        (None, None, [1, 0]),
        (None, "FASTEST_FIRST", [1, 0]),
        (None, "PCI_BUS_ID", [0, 1]),
        ("1", None, [0]),
        ("1", "PCI_BUS_ID", [1]),
        ("1,0", "PCI_BUS_ID", [1, 0]),
        (" 0 , 1", "PCI_BUS_ID", [0, 1]),
        ("1gpu", "PCI_BUS_ID", [1]),
        ("0,7,1", "PCI_BUS_ID", [0]),
        ("0,-1,1", "PCI_BUS_ID", [0]),
        ("0,0", "PCI_BUS_ID", []),
        ("", None, []),
        ("-1", None, []),
        ("NoDevFiles", None, []),  # Slurm's word for none
        ("GPU-ab22", None, [1]),
        ("GPU-aa,GPU-ab", None, [0, 1]),
        ("GPU-a", None, []),  # which of the two?
        ("GPU-ff", None, []),
        ("MIG-d1", None, []),
    ],
)
def test_gpus_are_shown_as_the_variables_say(visible: str | None, order: str | None, places: list[int]) -> None:
    given = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    environment = {name: value for name, value in given.items() if value is not None}
    assert find_visible([T4, A100], environment) == [VisibleGpu(gpu) for gpu in places]


def test_the_order_of_equal_gpus_is_that_of_their_slots_whatever_nvml_lists_first() -> None:
    twin = NvmlGpu("GPU-ee", "00000000:01:00.0", A100.speed)
    assert find_visible([A100, twin], {}) == [VisibleGpu(1), VisibleGpu(0)]


@pytest.mark.parametrize(
    ("visible", "places"),
    [
        (None, [VisibleGpu(1, 0)]),
        ("MIG-d2", [VisibleGpu(1, 1)]),
        ("1", [VisibleGpu(0)]),  # the T4, which comes after the faster one
        ("0", [VisibleGpu(1, 0)]),
        ("GPU-cc33", [VisibleGpu(1, 0)]),
    ],
)
def test_of_a_divided_gpu_one_slice_is_visible_and_no_other_gpu(visible: str | None, places: list[VisibleGpu]) -> None:
    assert find_visible([T4, SLICED], {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == places
