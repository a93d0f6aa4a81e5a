"""Telemetry in a few numbers: for the page of a run, for findings, for tables.

In: the records of telemetry.jsonl. Out: one `HostSummary`, and one `GpuSummary` for each GPU.

    busy_share of GPU 0     0.0  0.9  1.0  0.9  absent     ->   mean 0.7 over the four that are there
    throttle_reasons        []   []   [power_cap]  [power_cap]  absent    ->   {"power_cap": 0.5}
    energy_joules           100  110  125  140  absent     ->   40 used
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_Sample = Mapping[str, Any]


@dataclass(frozen=True)
class GpuSummary:
    """One GPU over all samples; None where it never reported that value."""

    gpu: int
    mean_busy_share: float | None
    mean_memory_busy_share: float | None
    peak_memory_bytes: int | None
    peak_temperature_celsius: float | None
    mean_power_watts: float | None
    energy_joules: float | None  # used between the first and the last sample
    throttled_shares: dict[str, float] | None  # reason -> share of the samples


@dataclass(frozen=True)
class HostSummary:
    seconds: float
    samples: int
    mean_core_share: float | None
    mean_cores_used: float | None
    peak_memory_bytes: int | None
    mean_disk_read_bytes_per_second: float | None
    mean_network_receive_bytes_per_second: float | None
    sampler_cpu_share: float | None  # of one core


def summarise_host(samples: Sequence[_Sample]) -> HostSummary:
    hosts = [sample["host"] for sample in samples]
    seconds = samples[-1]["time"] - samples[0]["time"] if samples else 0.0
    cpu = samples[-1]["sampler_cpu_seconds"] - samples[0]["sampler_cpu_seconds"] if samples else 0.0
    return HostSummary(
        seconds=seconds,
        samples=len(samples),
        mean_core_share=_mean(share for host in hosts for share in host["core_shares"]),
        mean_cores_used=_mean(_given(hosts, "cores_used")),
        peak_memory_bytes=max(_given(hosts, "peak_memory_bytes"), default=None),
        mean_disk_read_bytes_per_second=_mean(_given(hosts, "disk_read_bytes_per_second")),
        mean_network_receive_bytes_per_second=_mean(_given(hosts, "network_receive_bytes_per_second")),
        sampler_cpu_share=cpu / seconds if seconds > 0 else None,
    )


def summarise_gpus(samples: Sequence[_Sample]) -> list[GpuSummary]:
    """In the order of their indices; empty where no sample has GPUs."""
    by_gpu: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        for reading in sample["gpus"]:
            by_gpu.setdefault(reading["gpu"], []).append(reading)
    return [_summarise_gpu(gpu, readings) for gpu, readings in sorted(by_gpu.items())]


def find_trained(gpus: Sequence[Mapping[str, Any]], hardware: Mapping[str, Any]) -> set[int]:
    """Indices of the host's GPUs that a run trained on, by the UUIDs in its manifest; all where none matches.

    Other GPUs of the host may be busy for somebody else. NVML puts 'GPU-' or 'MIG-' before CUDA's UUIDs.
    """
    uuids = [str(uuid) for uuid in (hardware.get("uuids") or [hardware.get("uuid")]) if uuid]
    used = {uuid.split("-", 1)[-1] if uuid.startswith(("GPU-", "MIG-")) else uuid for uuid in uuids}
    trained = {gpu["gpu"] for gpu in gpus if any((gpu.get("uuid") or "").endswith(uuid) for uuid in used)}
    return trained or {gpu["gpu"] for gpu in gpus}


def _summarise_gpu(gpu: int, readings: Sequence[Mapping[str, Any]]) -> GpuSummary:
    energy = _given(readings, "energy_joules")
    reasons = _given(readings, "throttle_reasons")
    counts = Counter(reason for active in reasons for reason in active)
    return GpuSummary(
        gpu=gpu,
        mean_busy_share=_mean(_given(readings, "busy_share")),
        mean_memory_busy_share=_mean(_given(readings, "memory_busy_share")),
        peak_memory_bytes=max(_given(readings, "memory_bytes"), default=None),
        peak_temperature_celsius=max(_given(readings, "temperature_celsius"), default=None),
        mean_power_watts=_mean(_given(readings, "power_watts")),
        energy_joules=energy[-1] - energy[0] if energy else None,
        throttled_shares={name: count / len(reasons) for name, count in counts.items()} if reasons else None,
    )


def _given(readings: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    return [reading[name] for reading in readings if reading.get(name) is not None]


def _mean(values: Iterable[float]) -> float | None:
    collected = list(values)
    return sum(collected) / len(collected) if collected else None
