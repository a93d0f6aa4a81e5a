"""The machine's side of a run's page: where the time went, and what GPUs and host did meanwhile.

In: a run. Out: two sections, each left out where the run has no such records. GPUs are drawn by their numbers; where
the manifest tells which one trained, the others of the machine are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.report.charts import Unit, draw_timeline
from seqfit.report.document import figure, figures
from seqfit.report.elements import Html, facts, section, table
from seqfit.rundir import Run
from seqfit.rundir.time_spent import list_shares, read_time_spent
from seqfit.telemetry.summary import GpuSummary, summarise_gpus, summarise_host
from seqfit.units import format_bytes, format_flops, format_seconds, format_share

Sample = Mapping[str, Any]
_GPU_FIGURES: tuple[tuple[str, str, str, Unit], ...] = (
    ("busy_share", "GPU utilisation", "share of the time in which a kernel ran", "share"),
    ("memory_busy_share", "GPU memory traffic", "share of the time in which memory was accessed", "share"),
    ("memory_bytes", "GPU memory", "used by everybody", "bytes"),
    ("temperature_celsius", "GPU temperature", "degrees Celsius", "number"),
    ("power_watts", "GPU power", "watts", "number"),
)


def show_time(run: Run) -> Html | None:
    """A table of phases, and how busy the steps were with real tokens."""
    shares = list_shares(read_time_spent(run))
    if not shares:
        return None
    rows = [[name, format_seconds(seconds), format_share(share)] for name, seconds, share in shares]
    last = run.steps()[-1]
    absent = run.manifest.get("absent", {})
    flops, share = last.get("model_flops_per_second"), last.get("model_flops_share")
    said = {
        "Padding": format_share(last["padding_share"]) if last.get("padding_share") is not None else "",
        "Model operations": format_flops(flops) if flops else absent.get("model_flops_per_second", ""),
        "Of the device's peak": format_share(share) if share else absent.get("model_flops_share", ""),
    }
    note = "Phases of all steps, and what came between them. Operations are those that real tokens need."
    return section("Where the time went", facts(said), table(["phase", "time", "share"], rows), note=note)


def show_machine(run: Run) -> Html | None:
    """Figures of GPUs and host over the run's time."""
    samples = run.telemetry()
    if not samples:
        return None
    start = samples[0]["time"]
    minutes = [(sample["time"] - start) / 60 for sample in samples]
    sensors = run.sensors() or {}
    names = _choose_gpus(sensors, run.manifest.get("hardware", {}).get("uuid"))
    drawn = [
        figure(draw_timeline(lines, unit), title, note)
        for field, title, note, unit in _GPU_FIGURES
        if (lines := _gpu_lines(samples, minutes, names, field))
    ]
    cores = [_mean(sample["host"]["core_shares"]) for sample in samples]
    memory = [sample["host"]["memory_bytes"] for sample in samples]
    drawn += [
        figure(draw_timeline({"cores": _points(minutes, cores)}, "share"), "Processor", "mean of all cores"),
        figure(draw_timeline({"run": _points(minutes, memory)}, "bytes"), "Host memory", "the run's processes"),
    ]
    absent = [f"No readings of {what}: {reason}." for what, reason in sensors.get("absent", {}).items()]
    gpus = [gpu for gpu in summarise_gpus(samples) if gpu.gpu in names]
    shown = [_gpu_table(gpus, names)] if gpus else []
    return section("Machine", facts(_host_facts(samples)), *shown, figures(drawn), note=" ".join(absent))


def _choose_gpus(sensors: Mapping[str, Any], uuid: str | None) -> dict[int, str]:
    """Number -> name of those that trained; of all where that is not known. NVML puts 'GPU-' before CUDA's UUIDs."""
    names = {gpu["gpu"]: f"{gpu['name']} ({gpu['gpu']})" for gpu in sensors.get("gpus", [])}
    trained = {gpu["gpu"] for gpu in sensors.get("gpus", []) if uuid and (gpu["uuid"] or "").endswith(uuid)}
    return {number: name for number, name in names.items() if not trained or number in trained}


def _gpu_lines(
    samples: Sequence[Sample], minutes: Sequence[float], names: Mapping[int, str], field: str
) -> dict[str, dict[float, float]]:
    """Name of a GPU -> minute -> reading, where there is one."""
    lines: dict[str, dict[float, float]] = {}
    for minute, sample in zip(minutes, samples, strict=True):
        for reading in sample["gpus"]:
            if reading["gpu"] in names and reading[field] is not None:
                lines.setdefault(names[reading["gpu"]], {})[minute] = reading[field]
    return lines


def _host_facts(samples: Sequence[Sample]) -> dict[str, str]:
    host = summarise_host(samples)
    used, peak, read = host.mean_cores_used, host.peak_memory_bytes, host.mean_disk_read_bytes_per_second
    return {
        "Sampled": f"{host.samples:,} times in {format_seconds(host.seconds)}",
        "Cores used by the run": "" if used is None else f"{used:.1f} of {len(samples[0]['host']['core_shares'])}",
        "Peak host memory": "" if peak is None else format_bytes(peak),
        "Read from disks": "" if read is None else f"{format_bytes(read)}/s",
        "Cost of sampling": "" if host.sampler_cpu_share is None else f"{100 * host.sampler_cpu_share:.2f}% of a core",
    }


def _gpu_table(gpus: Sequence[GpuSummary], names: Mapping[int, str]) -> Html:
    columns = ["GPU", "busy", "memory", "hottest", "power", "energy", "slowed down"]
    rows = []
    for gpu in gpus:
        slowed = gpu.throttled_shares
        reasons = [f"{name.replace('_', ' ')} {format_share(share)}" for name, share in (slowed or {}).items()]
        rows.append(
            [
                names[gpu.gpu],
                "–" if gpu.mean_busy_share is None else format_share(gpu.mean_busy_share),
                "–" if gpu.peak_memory_bytes is None else format_bytes(gpu.peak_memory_bytes),
                "–" if gpu.peak_temperature_celsius is None else f"{gpu.peak_temperature_celsius:.0f} °C",
                "–" if gpu.mean_power_watts is None else f"{gpu.mean_power_watts:.0f} W",
                "–" if gpu.energy_joules is None else f"{gpu.energy_joules / 3600:.1f} Wh",
                "–" if slowed is None else ", ".join(reasons) or "never",
            ]
        )
    return table(columns, rows)


def _points(minutes: Sequence[float], values: Sequence[float]) -> dict[float, float]:
    return dict(zip(minutes, values, strict=True))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
