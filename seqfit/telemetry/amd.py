"""AMD's GPUs, through amdsmi, which ROCm brings along.

In: nothing. Out: a `GpuReading` for each card. amdsmi answers 'N/A' for what a card lacks, which is None in a reading.
PCIe traffic is left out: amdsmi gives it as one sum of both directions, or blocks for a second.

    amdsmi's units   energy 4,000,000 counts of 15.3 uJ    clock 1,700 MHz    busy 97%
    in a reading     61.2 joules                           1700000000 Hz      0.97
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from seqfit.rundir.records import GpuReading
from seqfit.telemetry.gpu import Gpu, NoReadings

# amdsmi's names of what holds a card back now -> the words that NVML's readings use, too
THROTTLING = {
    "active_ppt_pwr": "power_cap",
    "active_prochot_thrm": "thermal_hardware",
    "active_socket_thrm": "thermal_hardware",
    "active_vr_thrm": "thermal_hardware",
    "active_hbm_thrm": "thermal_hardware",
}


class AmdReader:
    """Open from its making until `close`."""

    def __init__(self) -> None:
        self._smi = _import_amdsmi()
        try:
            self._smi.amdsmi_init(self._smi.AmdSmiInitFlags.INIT_AMD_GPUS)
            self._handles = list(self._smi.amdsmi_get_processor_handles())
        except self._smi.AmdSmiException as error:
            raise NoReadings(f"AMD: {error}") from error
        if not self._handles:
            self._smi.amdsmi_shut_down()
            raise NoReadings("AMD: the driver lists no GPU")
        self.gpus = [self._describe(index) for index in range(len(self._handles))]

    def read(self) -> list[GpuReading]:
        """One reading for each GPU."""
        return [self._read(index) for index in range(len(self._handles))]

    def close(self) -> None:
        """Let go of the library."""
        self._smi.amdsmi_shut_down()

    def _describe(self, index: int) -> Gpu:
        smi, handle = self._smi, self._handles[index]
        chip = self._ask(smi.amdsmi_get_gpu_asic_info, handle) or {}
        memory = self._ask(smi.amdsmi_get_gpu_memory_total, handle, smi.AmdSmiMemoryType.VRAM)
        uuid = self._ask(smi.amdsmi_get_gpu_device_uuid, handle)
        return Gpu(index, chip.get("market_name") or "AMD GPU", uuid, memory)

    def _read(self, index: int) -> GpuReading:
        smi, handle = self._smi, self._handles[index]
        busy = self._ask(smi.amdsmi_get_gpu_activity, handle) or {}
        power = self._ask(smi.amdsmi_get_power_info, handle) or {}
        energy = self._ask(smi.amdsmi_get_energy_count, handle) or {}
        heat = (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)
        watts = _first_number(power, "socket_power", "current_socket_power", "average_socket_power")
        counts = _first_number(energy, "energy_accumulator", "power")  # its name until ROCm 6.0
        return GpuReading(
            gpu=index,
            busy_share=_scaled(_first_number(busy, "gfx_activity"), 0.01),
            memory_busy_share=_scaled(_first_number(busy, "umc_activity"), 0.01),
            memory_bytes=self._ask(smi.amdsmi_get_gpu_memory_usage, handle, smi.AmdSmiMemoryType.VRAM),
            temperature_celsius=self._ask(smi.amdsmi_get_temp_metric, handle, *heat),
            power_watts=watts,
            energy_joules=_scaled(counts, 1e-6 * float(energy.get("counter_resolution") or 0)),
            core_clock_hz=self._clock(handle, smi.AmdSmiClkType.GFX),
            memory_clock_hz=self._clock(handle, smi.AmdSmiClkType.MEM),
            throttle_reasons=self._reasons(handle),
        )

    def _clock(self, handle: Any, kind: Any) -> Any:
        clock = self._ask(self._smi.amdsmi_get_clock_info, handle, kind) or {}
        return _scaled(_first_number(clock, "clk", "cur_clk"), 10**6)

    def _reasons(self, handle: Any) -> list[str] | None:
        if not hasattr(self._smi, "amdsmi_get_violation_status"):  # since ROCm 6.3
            return None
        status = self._ask(self._smi.amdsmi_get_violation_status, handle)
        if status is None:
            return None
        return sorted({name for key, name in THROTTLING.items() if status.get(key) is True})

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """None where the card or the driver has no answer."""
        try:
            return question(*arguments)
        except self._smi.AmdSmiException:
            return None


def _import_amdsmi() -> Any:
    """Without its C library amdsmi prints to standard output and fails with a KeyError (7.0)."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi
    except (ImportError, KeyError, OSError) as error:
        raise NoReadings(f"AMD: {error if isinstance(error, ImportError) else f'no {error.args[0]}'}") from error
    return amdsmi


def _first_number(answer: dict[str, Any], *names: str) -> float | None:
    """Of several spellings the first that is a number, not 'N/A'."""
    return next((answer[name] for name in names if isinstance(answer.get(name), int | float)), None)


def _scaled(value: float | None, factor: float) -> Any:
    return None if value is None else value * factor
