"""A recording of two GPUs in a run of 150 seconds, as the sampler would have written it.

GPU 0 idles for ten seconds, then trains: it warms up, reaches its power cap, and from 83 degrees on is slowed down.
GPU 1 is an older card without energy counter, PCIe counters and clock reasons, which idles all the time.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from seqfit.rundir import files
from seqfit.rundir.records import GpuReading, HostReading, TelemetryRecord

START, HZ, SAMPLES, IDLE_SAMPLES = 1_770_000_000.0, 2, 300, 20
GPUS = [
    {"gpu": 0, "name": "NVIDIA GeForce RTX 3090", "uuid": "GPU-aa", "memory_bytes": 24 * 2**30},
    {"gpu": 1, "name": "Tesla K80", "uuid": "GPU-bb", "memory_bytes": 12 * 2**30},
]


def _training_gpu(number: int, energy_joules: float) -> GpuReading:
    busy_seconds = max(0, number - IDLE_SAMPLES) / HZ
    training = number >= IDLE_SAMPLES
    celsius = 35 + 52 * (1 - math.exp(-busy_seconds / 40))
    hot, capped = celsius >= 83, training and busy_seconds > 5
    return GpuReading(
        gpu=0,
        busy_share=round(0.93 + 0.06 * math.sin(number), 2) if training else 0.0,
        memory_busy_share=0.55 if training else 0.0,
        memory_bytes=17_300_000_000 if training else 420_000_000,
        temperature_celsius=round(celsius),
        power_watts=(300.0 if hot else 350.0) if training else 32.0,
        energy_joules=round(energy_joules, 3),
        core_clock_hz=(1_410_000_000 if hot else 1_695_000_000) if training else 210_000_000,
        memory_clock_hz=9_751_000_000 if training else 405_000_000,
        throttle_reasons=["thermal_software"] if hot else ["power_cap"] if capped else [],
        pcie_receive_bytes_per_second=(180_000_000 if training else 1_000) if number % 2 == 0 else None,
        pcie_send_bytes_per_second=(40_000_000 if training else 1_000) if number % 2 == 0 else None,
    )


def _idle_gpu() -> GpuReading:
    return GpuReading(
        gpu=1,
        busy_share=0.0,
        memory_busy_share=0.0,
        memory_bytes=63_000_000,
        temperature_celsius=31,
        power_watts=27.0,
        core_clock_hz=324_000_000,
        memory_clock_hz=324_000_000,
    )


def _host(number: int) -> HostReading:
    rate = None if number == 0 else 2_000_000.0
    return HostReading(
        core_shares=[0.9, 0.1, 0.2, 0.0],
        load=1.4,
        processes=1,
        cores_used=None if number == 0 else 1.1,
        memory_bytes=2_500_000_000 + 1_000_000 * number,
        peak_memory_bytes=2_500_000_000 + 1_000_000 * number,
        disk_read_bytes_per_second=rate,
        disk_write_bytes_per_second=rate,
        network_receive_bytes_per_second=rate,
        network_send_bytes_per_second=rate,
    )


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    (folder / files.SENSORS).write_text(json.dumps({"hz": HZ, "gpus": GPUS, "absent": {}}))
    energy, lines = 5_000.0, []
    for number in range(SAMPLES):
        reading = _training_gpu(number, energy)
        energy += (reading.power_watts or 0) / HZ
        record = TelemetryRecord(START + number / HZ, _host(number), [reading, _idle_gpu()], 0.05 + 0.0005 * number)
        lines.append(json.dumps(asdict(record)))
    (folder / files.TELEMETRY).write_text("\n".join(lines) + "\n")
    return folder
