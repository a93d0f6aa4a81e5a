from __future__ import annotations

import builtins
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from seqfit.telemetry.gpu import AmdReader, open_gpu_reader


class AmdSmiException(Exception):
    pass


class FakeAmdsmi:
    """amdsmi with one card, in the units and spellings of version 7."""

    AmdSmiException = AmdSmiException
    AmdSmiInitFlags = SimpleNamespace(INIT_AMD_GPUS=2)
    AmdSmiMemoryType = SimpleNamespace(VRAM=0)
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiClkType = SimpleNamespace(GFX=1, MEM=5)

    def amdsmi_init(self, flags: int) -> None:
        return None

    def amdsmi_shut_down(self) -> None:
        return None

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["card"]

    def amdsmi_get_gpu_asic_info(self, handle: str) -> dict[str, Any]:
        return {"market_name": "AMD Instinct MI210"}

    def amdsmi_get_gpu_device_uuid(self, handle: str) -> str:
        raise AmdSmiException("not supported")

    def amdsmi_get_gpu_memory_total(self, handle: str, kind: int) -> int:
        return 64 * 2**30

    def amdsmi_get_gpu_memory_usage(self, handle: str, kind: int) -> int:
        return 10 * 2**30

    def amdsmi_get_gpu_activity(self, handle: str) -> dict[str, Any]:
        return {"gfx_activity": 88, "umc_activity": "N/A", "mm_activity": "N/A"}

    def amdsmi_get_power_info(self, handle: str) -> dict[str, Any]:
        return {"socket_power": "N/A", "current_socket_power": "N/A", "average_socket_power": 240}

    def amdsmi_get_energy_count(self, handle: str) -> dict[str, Any]:
        return {"energy_accumulator": 4_000_000, "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_temp_metric(self, handle: str, sensor: int, metric: int) -> int:
        return 67

    def amdsmi_get_clock_info(self, handle: str, kind: int) -> dict[str, Any]:
        return {"clk": {1: 1_700, 5: "N/A"}[kind]}

    def amdsmi_get_violation_status(self, handle: str) -> dict[str, Any]:
        return {"active_ppt_pwr": True, "active_socket_thrm": False, "active_vr_thrm": "N/A"}


@pytest.fixture
def amdsmi(monkeypatch: pytest.MonkeyPatch) -> FakeAmdsmi:
    fake = FakeAmdsmi()
    monkeypatch.setitem(sys.modules, "amdsmi", fake)  # type: ignore[arg-type]
    return fake


def test_readings_are_in_base_units_and_what_is_not_available_is_none(amdsmi: FakeAmdsmi) -> None:
    reader = AmdReader()
    (reading,) = reader.read()
    assert (reading.busy_share, reading.memory_busy_share) == (0.88, None)
    assert (reading.memory_bytes, reading.temperature_celsius, reading.power_watts) == (10 * 2**30, 67, 240)
    assert reading.energy_joules == pytest.approx(61.2)
    assert (reading.core_clock_hz, reading.memory_clock_hz) == (1_700_000_000, None)
    assert reading.throttle_reasons == ["power_cap"]
    assert [(gpu.name, gpu.uuid, gpu.memory_bytes) for gpu in reader.gpus] == [("AMD Instinct MI210", None, 64 * 2**30)]


def test_without_a_violation_status_throttling_is_unknown_and_not_absent(
    amdsmi: FakeAmdsmi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(FakeAmdsmi, "amdsmi_get_violation_status")
    assert AmdReader().read()[0].throttle_reasons is None


@pytest.mark.parametrize("error", [ImportError("No module named 'amdsmi'"), KeyError("libamd_smi.so")])
def test_a_machine_without_amds_library_has_no_reader_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real = builtins.__import__

    def fail(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "amdsmi":
            raise error
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.setattr(builtins, "__import__", fail)
    reader, reason = open_gpu_reader([AmdReader])
    assert reader is None
    assert reason.startswith("AMD: no ") or reason == "AMD: No module named 'amdsmi'"
