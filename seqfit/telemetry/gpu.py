"""GPU readings through one small interface: NVIDIA's library, AMD's, or a recording.

    reader, reason = open_gpu_reader([NvmlReader, AmdReader])
    reader.gpus          [SampledGpu(0, "NVIDIA GeForce RTX 3090", "GPU-5b...", 25769803776), SampledGpu(1, ...)]
    reader.read()        [GpuReading(gpu=0, busy_share=0.97, ...), GpuReading(gpu=1, busy_share=0.0, ...)]

What a card does not report (a GeForce has no energy counter, a virtual GPU no clocks) is None in its reading; a machine
without the driver has no reader at all.

NVML (of NVIDIA's driver, by nvidia-ml-py). A GPU in MIG mode is read by slices: each has its own memory; temperature
and clocks are those of the whole GPU, power and energy can't be separated.

    NVML's units     power 285,300 mW    energy 9,120,500 mJ    clock 1,695 MHz    PCIe 12,000 KB/s    busy 97%
    in a reading     285.3 watts         9120.5 joules          1695000000 Hz      12000000 bytes/s    0.97

amdsmi (part of ROCm). It returns 'N/A' for what a card lacks. PCIe traffic is left out: amdsmi gives the sum of both
directions, or blocks for a second.

    amdsmi's units   energy 4,000,000 counts of 15.3 uJ    clock 1,700 MHz    busy 97%
    in a reading     61.2 joules                           1700000000 Hz      0.97

A recording replays the telemetry of an earlier run, so that what is built on readings (pages, findings) can be tested
where there is no such GPU.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seqfit.hardware import list_slices
from seqfit.rundir import RecordFile, files, records


@dataclass(frozen=True, slots=True)
class SampledGpu:
    """One card, as its driver numbers it: CUDA may number differently, so the UUID identifies it."""

    gpu: int
    name: str
    uuid: str | None
    memory_bytes: int | None


class GpuReader(Protocol):
    """Reads all GPUs of the machine."""

    gpus: list[SampledGpu]

    def read(self) -> list[records.GpuReading]:
        """One reading for each GPU, in the order of `gpus`."""

    def close(self) -> None:
        """Release the library."""


class NoReadings(Exception):
    """A reader that does not work on this machine; the text says why."""


ReaderOpener = Callable[[], GpuReader]


def open_gpu_reader(openers: Sequence[ReaderOpener]) -> tuple[GpuReader | None, str]:
    """The first reader that works, or None and the reason of each."""
    reasons = []
    for opener in openers:
        try:
            return opener(), ""
        except NoReadings as reason:
            reasons.append(str(reason))
    return None, "; ".join(reasons)


# The bits of nvmlClocksEventReasons that slow a card down. Left out: idle, clocks set by the user or by a display.
NVML_THROTTLING = {
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}


class NvmlReader:
    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise NoReadings(f"NVIDIA: {error}") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            wholes = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            slices = [list_slices(pynvml, whole) for whole in wholes]
        except pynvml.NVMLError as error:
            raise NoReadings(f"NVIDIA: {error}") from error
        if not wholes:
            pynvml.nvmlShutdown()
            raise NoReadings("NVIDIA: the driver lists no GPU")
        # Each GPU or slice, and the whole GPU that it belongs to.
        self._handles = [
            (part, whole) for whole, parts in zip(wholes, slices, strict=True) for part in parts or [whole]
        ]
        self.gpus = [self._describe(index) for index in range(len(self._handles))]
        self._reads = 0

    def read(self) -> list[records.GpuReading]:
        """PCIe traffic is counted for 20 ms per call, so each sample reads that of one GPU, in turn."""
        turn = self._reads % len(self._handles)
        self._reads += 1
        return [self._read(index, with_pcie=index == turn) for index in range(len(self._handles))]

    def close(self) -> None:
        """Release the library."""
        self._nvml.nvmlShutdown()

    def _describe(self, index: int) -> SampledGpu:
        handle, _ = self._handles[index]
        name = self._ask(self._nvml.nvmlDeviceGetName, handle)
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        uuid = self._ask(self._nvml.nvmlDeviceGetUUID, handle)
        return SampledGpu(index, name or "NVIDIA GPU", uuid, None if memory is None else int(memory.total))

    def _read(self, index: int, *, with_pcie: bool) -> records.GpuReading:
        nvml, (part, handle) = self._nvml, self._handles[index]
        is_whole = part is handle
        busy = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle) if is_whole else None
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, part)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle) if is_whole else None
        energy = self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle) if is_whole else None
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return records.GpuReading(
            gpu=index,
            busy_share=None if busy is None else busy.gpu / 100,
            memory_busy_share=None if busy is None else busy.memory / 100,
            memory_bytes=None if memory is None else int(memory.used),
            temperature_celsius=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_watts=_scaled(power, 1e-3),
            energy_joules=_scaled(energy, 1e-3),
            core_clock_hz=_scaled(self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), 10**6),
            memory_clock_hz=_scaled(self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM), 10**6),
            throttle_reasons=None if reasons is None else name_reasons(reasons),
            pcie_receive_bytes_per_second=self._pcie(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) if with_pcie else None,
            pcie_send_bytes_per_second=self._pcie(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) if with_pcie else None,
        )

    def _pcie(self, handle: Any, direction: int) -> Any:
        return _scaled(self._ask(self._nvml.nvmlDeviceGetPcieThroughput, handle, direction), 1000)

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """None where the card or the driver does not report it, or the card is gone."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def name_reasons(mask: int) -> list[str]:
    """0x44 -> ['power_cap', 'thermal_hardware']."""
    return [name for bit, name in NVML_THROTTLING.items() if mask & bit]


def _scaled(value: float | None, factor: float) -> Any:
    return None if value is None else value * factor


# amdsmi's names of what slows a card down -> the names in NVML's readings
AMD_THROTTLING = {
    "active_ppt_pwr": "power_cap",
    "active_prochot_thrm": "thermal_hardware",
    "active_socket_thrm": "thermal_hardware",
    "active_vr_thrm": "thermal_hardware",
    "active_hbm_thrm": "thermal_hardware",
}


class AmdReader:
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

    def read(self) -> list[records.GpuReading]:
        return [self._read(index) for index in range(len(self._handles))]

    def close(self) -> None:
        """Release the library."""
        self._smi.amdsmi_shut_down()

    def _describe(self, index: int) -> SampledGpu:
        smi, handle = self._smi, self._handles[index]
        chip = self._ask(smi.amdsmi_get_gpu_asic_info, handle) or {}
        memory = self._ask(smi.amdsmi_get_gpu_memory_total, handle, smi.AmdSmiMemoryType.VRAM)
        uuid = self._ask(smi.amdsmi_get_gpu_device_uuid, handle)
        return SampledGpu(index, chip.get("market_name") or "AMD GPU", uuid, memory)

    def _read(self, index: int) -> records.GpuReading:
        smi, handle = self._smi, self._handles[index]
        busy = self._ask(smi.amdsmi_get_gpu_activity, handle) or {}
        power = self._ask(smi.amdsmi_get_power_info, handle) or {}
        energy = self._ask(smi.amdsmi_get_energy_count, handle) or {}
        heat = (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)
        watts = _first_number(power, "socket_power", "current_socket_power", "average_socket_power")
        counts = _first_number(energy, "energy_accumulator", "power")  # its name until ROCm 6.0
        return records.GpuReading(
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
        return sorted({name for key, name in AMD_THROTTLING.items() if status.get(key) is True})

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """None where the card or the driver does not report it."""
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
    """The first of several spellings that is a number, not 'N/A'."""
    return next((answer[name] for name in names if isinstance(answer.get(name), int | float)), None)


class RecordedReader:
    """Replays telemetry.jsonl and sensors.json of a folder, from the start again after the last sample."""

    def __init__(self, folder: Path) -> None:
        samples = RecordFile(folder / files.TELEMETRY).read()
        if not any(sample["gpus"] for sample in samples):
            raise NoReadings(f"{folder / files.TELEMETRY} has no GPU readings")
        sensors = json.loads((folder / files.SENSORS).read_text("utf-8"))
        self.gpus = [SampledGpu(**gpu) for gpu in sensors["gpus"]]
        self._samples = itertools.cycle(samples)

    def read(self) -> list[records.GpuReading]:
        return [records.GpuReading(**reading) for reading in next(self._samples)["gpus"]]

    def close(self) -> None:
        """Nothing is held open."""
