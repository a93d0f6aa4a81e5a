"""Telemetry: utilisation, memory, temperature and power on one time axis.

In: a subject. Out: a section, left out where no run has telemetry. The charts are stacked, so that a dip in one can be
followed through all; evaluations and snapshots of a single run are shaded. GPUs that the run did not train on are left
out where the manifest identifies them.

    utilisation   ~~~~~~|   |~~~~~~~~
    memory        ------|   |--------
    power         ~~~~~~|   |~~~~~~~~
    minutes       0     3   4        9          3 to 4: an evaluation
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqfit.reporting.charts import (
    ACCENT,
    DASHES,
    NEUTRAL,
    AxisUnit,
    ChartLine,
    axis_of,
    build_trace,
    finish,
    points_of_each,
)
from seqfit.reporting.curves import EvaluationBand, find_bands
from seqfit.reporting.html import Html, facts, figure, figures, section, table
from seqfit.reporting.runs import ShownRun, Track, inner, number
from seqfit.reporting.subject import ReportSubject
from seqfit.telemetry import GpuSummary, find_trained, summarise_gpus, summarise_host
from seqfit.units import format_bytes, format_seconds, format_share

if TYPE_CHECKING:
    import plotly.graph_objects as go

_Sample = Mapping[str, Any]
_ROW_PIXELS, _AROUND_PIXELS = 118, 70
# Title, unit, what GPUs give of it, what the host gives of it.
_ROWS: tuple[tuple[str, AxisUnit, str, str], ...] = (
    ("utilisation", "share", "busy_share", "core_shares"),
    ("memory", "bytes", "memory_bytes", "memory_bytes"),
    ("temperature, °C", "number", "temperature_celsius", ""),
    ("power, W", "number", "power_watts", ""),
)


def show_machine(subject: ReportSubject) -> Html | None:
    runs = [run for run in subject.runs if run.telemetry()]
    if not runs:
        return None
    tracks = {run: Track(run) for run in subject.runs}
    listed = {title: (unit, _list_lines(subject, tracks, gpu, host)) for title, unit, gpu, host in _ROWS}
    rows = {title: (unit, lines) for title, (unit, lines) in listed.items() if lines}
    bands = find_bands(subject.single, tracks[subject.single]) if subject.single is not None else []
    shaded = ", ".join(dict.fromkeys(band.title for band in bands))
    note = f"shaded: {shaded}" if bands else "minutes since the start of each run"
    chart = figure(draw_timeline(rows, bands), "Telemetry over time", note, name="machine")
    if subject.single is None:
        without = [run.name for run in subject.runs if not run.telemetry()]
        of = "GPUs where a run has some, else the host" if any(map(_choose_gpus, subject.runs)) else "The host"
        lines = f"{of}: the mean of all cores, and the memory of the run's processes."
        lines += f" No telemetry: {', '.join(without)}." if without else ""
        return section("Telemetry", figures([chart]), note=lines)
    samples, names = runs[0].telemetry(), _choose_gpus(runs[0])
    gpus = [gpu for gpu in summarise_gpus(samples) if gpu.gpu in names]
    absent = inner(runs[0].sensors() or {}, "absent")
    missing = " ".join(f"No {'GPU' if what == 'gpus' else what} readings: {reason}." for what, reason in absent.items())
    summary = [_gpu_table(gpus, names)] if gpus else []
    return section("Telemetry", figures([chart]), facts(_host_facts(samples)), *summary, note=missing)


def draw_timeline(
    rows: Mapping[str, tuple[AxisUnit, Sequence[ChartLine]]], bands: Sequence[EvaluationBand]
) -> go.Figure:
    from plotly.subplots import make_subplots

    drawn = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.07)
    drawn.update_layout(template="none", height=_AROUND_PIXELS + _ROW_PIXELS * len(rows))
    finish(drawn, x="")
    drawn.update_xaxes(title={"text": "minutes"}, row=len(rows), col=1)
    listed: set[str] = set()
    for place, (title, (unit, lines)) in enumerate(rows.items(), 1):
        for line in lines:
            trace = build_trace(line, unit, at_most=points_of_each(len(lines)), at="minute %{x:.1f}")
            trace.legendgroup, trace.showlegend = line.name, line.name not in listed
            listed.add(line.name)
            drawn.add_trace(trace, row=place, col=1)
        drawn.update_yaxes(title={"text": title, "standoff": 4}, **axis_of(unit, lines), row=place, col=1)
    # Through all rows: one shape per band keeps the page small.
    look = {"type": "rect", "y0": 0, "y1": 1, "yref": "paper", "opacity": 0.14, "line": {"width": 0}, "layer": "below"}
    shapes = [{**look, "x0": band.begin, "x1": band.end, "fillcolor": band.colour} for band in bands]
    drawn.update_layout(showlegend=len(listed) > 1, shapes=shapes)
    return drawn


def _list_lines(
    subject: ReportSubject, tracks: Mapping[ShownRun, Track], gpu_field: str, host_field: str
) -> list[ChartLine]:
    """GPUs and host of a single run, the first in the accent colour; of several runs the GPUs, or else the host."""
    lines: list[ChartLine] = []
    for group, runs in subject.groups.items():
        for run in runs:
            found = _gpu_lines(run, tracks[run], gpu_field)
            if host_field and (subject.single is not None or not found):
                found["host"] = _host_line(run, tracks[run], host_field)
            for place, (name, points) in enumerate(found.items()):
                if points and subject.single is not None:
                    colour = ACCENT if place == 0 else NEUTRAL
                    lines.append(ChartLine(name, points, colour, DASHES[max(0, place - 1) % len(DASHES)]))
                elif points:
                    lines.append(ChartLine(group, points, subject.colour(group), subject.dash(group), 1.5))
    return lines


def _gpu_lines(run: ShownRun, track: Track, field: str) -> dict[str, list[tuple[float, float]]]:
    """Name of a GPU -> minutes and readings."""
    names = _choose_gpus(run)
    lines: dict[str, list[tuple[float, float]]] = {}
    for sample in run.telemetry():
        minute = track.minutes(sample["time"])
        for reading in sample["gpus"]:
            value = number(reading, field)
            if reading.get("gpu") in names and value is not None:
                lines.setdefault(names[reading["gpu"]], []).append((minute, value))
    return lines


def _host_line(run: ShownRun, track: Track, field: str) -> list[tuple[float, float]]:
    points = []
    for sample in run.telemetry():
        value = number(sample["host"], field)
        if field == "core_shares":
            cores = sample["host"].get(field) or []
            value = sum(cores) / len(cores) if cores else None
        if value is not None:
            points.append((track.minutes(sample["time"]), value))
    return points


def _choose_gpus(run: ShownRun) -> dict[int, str]:
    """Index -> name of the GPUs that were trained on; all where that is not known."""
    given = (run.sensors() or {}).get("gpus", [])
    hardware = inner(run.manifest, "hardware")
    if run.manifest.get("launch") and not hardware.get("uuids"):
        hardware = {}  # an older run: its one UUID is the first process's
    trained = find_trained(given, hardware)
    return {gpu["gpu"]: f"{gpu['name']} ({gpu['gpu']})" for gpu in given if gpu["gpu"] in trained}


def _host_facts(samples: Sequence[_Sample]) -> dict[str, str]:
    host = summarise_host(samples)
    used, peak, read = host.mean_cores_used, host.peak_memory_bytes, host.mean_disk_read_bytes_per_second
    return {
        "Samples": f"{host.samples:,} in {format_seconds(host.seconds)}",
        "Cores used by the run": "" if used is None else f"{used:.1f} of {len(samples[0]['host']['core_shares'])}",
        "Peak host memory": "" if peak is None else format_bytes(peak),
        "Disk reads": "" if read is None else f"{format_bytes(read)}/s",
        "Sampler overhead": "" if host.sampler_cpu_share is None else f"{100 * host.sampler_cpu_share:.2f}% of a core",
    }


def _gpu_table(gpus: Sequence[GpuSummary], names: Mapping[int, str]) -> Html:
    columns = ["GPU", "utilisation", "peak memory", "max temperature", "mean power", "energy", "throttled"]
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
