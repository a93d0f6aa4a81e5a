"""NVIDIA's GPUs, through NVML (the library of the driver, from nvidia-ml-py).

In: nothing. Out: a `GpuReading` for each card. What a card does not give (a GeForce has no energy counter, a virtual
GPU no clocks) is None in its reading; a machine without the driver has no reader at all. A GPU in MIG mode is read by
slices: each has memory of its own; heat and clocks are the whole GPU's, power and energy can't be told apart.

    NVML's units     power 285,300 mW    energy 9,120,500 mJ    clock 1,695 MHz    PCIe 12,000 KB/s    busy 97%
    in a reading     285.3 watts         9120.5 joules          1695000000 Hz      12000000 bytes/s    0.97
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqfit.hardware.probe import list_slices
from seqfit.rundir.records import GpuReading
from seqfit.telemetry.gpu import Gpu, NoReadings

# The bits of nvmlClocksEventReasons that slow a card down. Left out: idle, clocks set by the user or by a display.
THROTTLING = {
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}


class NvmlReader:
    """Open from its making until `close`."""

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
        # What has memory, and the GPU that it is, or is a slice of.
        self._handles = [
            (part, whole) for whole, parts in zip(wholes, slices, strict=True) for part in parts or [whole]
        ]
        self.gpus = [self._describe(index) for index in range(len(self._handles))]
        self._reads = 0

    def read(self) -> list[GpuReading]:
        """One reading for each GPU. PCIe traffic is counted for 20 ms at each call, so one GPU is asked at a time."""
        turn = self._reads % len(self._handles)
        self._reads += 1
        return [self._read(index, with_pcie=index == turn) for index in range(len(self._handles))]

    def close(self) -> None:
        """Let go of the library."""
        self._nvml.nvmlShutdown()

    def _describe(self, index: int) -> Gpu:
        handle, _ = self._handles[index]
        name = self._ask(self._nvml.nvmlDeviceGetName, handle)
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        uuid = self._ask(self._nvml.nvmlDeviceGetUUID, handle)
        return Gpu(index, name or "NVIDIA GPU", uuid, None if memory is None else int(memory.total))

    def _read(self, index: int, *, with_pcie: bool) -> GpuReading:
        nvml, (part, handle) = self._nvml, self._handles[index]
        is_whole = part is handle
        busy = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle) if is_whole else None
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, part)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle) if is_whole else None
        energy = self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle) if is_whole else None
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return GpuReading(
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
        """None where the card or the driver has no answer, or the card is gone."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def name_reasons(mask: int) -> list[str]:
    """0x44 -> ['power_cap', 'thermal_hardware']."""
    return [name for bit, name in THROTTLING.items() if mask & bit]


def _scaled(value: float | None, factor: float) -> Any:
    return None if value is None else value * factor
