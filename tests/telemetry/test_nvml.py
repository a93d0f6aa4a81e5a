from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from seqfit.telemetry.gpu import NoReadings, NvmlReader, name_reasons, open_gpu_reader


class NVMLError(Exception):
    pass


class FakeNvml:
    """NVML with two cards: the second has no energy counter and no clock reasons, and is lost after a while."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self, cards: int = 2, divided: int | None = None) -> None:
        self.cards, self.lost, self.open, self.divided = cards, False, 0, divided

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"card {handle}"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if handle != self.divided:
            raise NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> str:
        if index >= 2:
            raise NVMLError("Not Found")
        return f"slice {index}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._check(handle)
        if isinstance(handle, str):
            return SimpleNamespace(total=5_000, used=int(handle[-1]) + 1)
        return SimpleNamespace(total=24_000, used=6_000)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._check(handle)
        return SimpleNamespace(gpu=97, memory=41)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._check(handle)
        return 71

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._check(handle)
        return 285_300

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._check(handle, newer=True)
        return 9_120_500

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        self._check(handle)
        return {self.NVML_CLOCK_SM: 1_695, self.NVML_CLOCK_MEM: 9_751}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        self._check(handle, newer=True)
        return 0x4 | 0x1

    def nvmlDeviceGetPcieThroughput(self, handle: int, direction: int) -> int:
        self._check(handle)
        return {self.NVML_PCIE_UTIL_RX_BYTES: 12_000, self.NVML_PCIE_UTIL_TX_BYTES: 500}[direction]

    def _check(self, handle: int, newer: bool = False) -> None:
        if handle == 1 and (self.lost or newer):
            raise NVMLError("GPU is lost" if self.lost else "Not Supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    return fake


def test_readings_are_in_base_units(nvml: FakeNvml) -> None:
    reading = NvmlReader().read()[0]
    assert (reading.busy_share, reading.memory_busy_share, reading.memory_bytes) == (0.97, 0.41, 6_000)
    assert (reading.temperature_celsius, reading.power_watts) == (71, pytest.approx(285.3))
    assert reading.energy_joules == pytest.approx(9_120.5)
    assert (reading.core_clock_hz, reading.memory_clock_hz) == (1_695_000_000, 9_751_000_000)
    assert (reading.pcie_receive_bytes_per_second, reading.pcie_send_bytes_per_second) == (12_000_000, 500_000)
    assert reading.throttle_reasons == ["power_cap"]  # idle is no throttling


def test_what_a_card_does_not_give_is_none_and_the_rest_is_there(nvml: FakeNvml) -> None:
    reading = NvmlReader().read()[1]
    assert (reading.energy_joules, reading.throttle_reasons) == (None, None)
    assert reading.busy_share == 0.97


def test_a_card_that_is_lost_while_sampling_does_not_end_the_others(nvml: FakeNvml) -> None:
    reader = NvmlReader()
    nvml.lost = True
    healthy, lost = reader.read()
    assert healthy.busy_share == 0.97
    assert (lost.gpu, lost.busy_share, lost.memory_bytes, lost.power_watts) == (1, None, None, None)


def test_pcie_is_asked_of_one_card_at_a_time(nvml: FakeNvml) -> None:
    reader = NvmlReader()
    asked = [[reading.pcie_send_bytes_per_second is not None for reading in reader.read()] for _ in range(3)]
    assert asked == [[True, False], [False, True], [True, False]]


def test_cards_are_described_and_the_library_is_let_go(nvml: FakeNvml) -> None:
    reader = NvmlReader()
    assert [(gpu.gpu, gpu.name, gpu.uuid, gpu.memory_bytes) for gpu in reader.gpus] == [
        (0, "card 0", "GPU-0", 24_000),
        (1, "card 1", "GPU-1", 24_000),
    ]
    reader.close()
    assert nvml.open == 0


def test_slices_of_a_divided_gpu_have_memory_of_their_own_and_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(divided=0)
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    reader = NvmlReader()
    assert [(gpu.gpu, gpu.uuid, gpu.memory_bytes) for gpu in reader.gpus] == [
        (0, "GPU-slice 0", 5_000),
        (1, "GPU-slice 1", 5_000),
        (2, "GPU-1", 24_000),
    ]
    first, second, whole = reader.read()
    assert (first.memory_bytes, second.memory_bytes, whole.memory_bytes) == (1, 2, 6_000)
    assert (first.power_watts, first.energy_joules, first.busy_share) == (None, None, None)
    assert (first.temperature_celsius, second.core_clock_hz) == (71, 1_695_000_000)


def test_a_driver_without_cards_is_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(cards=0)
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    with pytest.raises(NoReadings, match="the driver lists no GPU"):
        NvmlReader()
    assert fake.open == 0


def test_without_the_drivers_library_the_reason_is_nvmls_own(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> None:
    def fail() -> None:
        raise NVMLError("NVML Shared Library Not Found")

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    assert open_gpu_reader([NvmlReader]) == (None, "NVIDIA: NVML Shared Library Not Found")


def test_the_names_used_exist_in_the_real_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    names = [name for name in dir(FakeNvml) if name.lower().startswith("nvml") and name != "NVMLError"]
    assert len(names) > 15
    assert [name for name in names if not hasattr(pynvml, name)] == []
    bits = {value: name for name, value in vars(pynvml).items() if name.startswith("nvmlClocksEventReason")}
    assert {name_reasons(bit)[0]: bits[bit] for bit in (0x4, 0x20, 0x40)} == {
        "power_cap": "nvmlClocksEventReasonSwPowerCap",
        "thermal_software": "nvmlClocksEventReasonSwThermalSlowdown",
        "thermal_hardware": "nvmlClocksEventReasonHwThermalSlowdown",
    }
