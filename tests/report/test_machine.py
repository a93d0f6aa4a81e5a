from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from seqfit.report.machine import show_machine, show_time
from seqfit.report.page import report
from seqfit.rundir import Run, files
from seqfit.rundir.records import GpuReading, HostReading, TelemetryRecord

TWO = [
    {"gpu": 0, "name": "RTX 3090", "uuid": "GPU-aa", "memory_bytes": 24 * 2**30},
    {"gpu": 1, "name": "Tesla K80", "uuid": "GPU-bb", "memory_bytes": 12 * 2**30},
]


def add_phases(run_path: Path) -> None:
    lines = [json.loads(line) for line in (run_path / files.STEPS).read_text().splitlines()]
    extra = {"phase_seconds": {"forward": 1.2, "backward": 2.4}, "padding_share": 0.125}
    extra |= {"model_flops_per_second": 7.1e12, "model_flops_share": 0.1}
    (run_path / files.STEPS).write_text("".join(json.dumps(line | extra) + "\n" for line in lines))


def add_telemetry(run_path: Path, gpus: Sequence[dict[str, Any]], absent: dict[str, str]) -> None:
    host = HostReading([0.5, 0.1], 1.0, 1, 0.6, 2**30, 2**30, None, None, None, None)
    busy = GpuReading(0, 0.9, 0.5, 17 * 2**30, 84, 340.0, 3_600.0, throttle_reasons=["power_cap"])
    readings = [busy, GpuReading(1, 0.0, memory_bytes=2**20)][: len(gpus)]
    samples = [TelemetryRecord(1e9 + second, host, readings, 0.01 * second) for second in range(5)]
    (run_path / files.TELEMETRY).write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
    (run_path / files.SENSORS).write_text(json.dumps({"hz": 1, "gpus": gpus, "absent": absent}))


def test_a_run_without_such_records_has_neither_part(run_path: Path) -> None:
    assert show_time(Run(run_path)) is None
    assert show_machine(Run(run_path)) is None
    assert "Where the time went" not in report(run_path).read_text("utf-8")


def test_the_phases_are_a_table_with_the_longest_first(run_path: Path) -> None:
    add_phases(run_path)
    page = report(run_path).read_text("utf-8")
    shown = page[page.index("Where the time went") :]
    assert shown.index("backward") < shown.index("forward") < shown.index("other")
    for said in ("8 min 00 s", "63.2%", "12.5%", "7.1 TFLOP/s", "10.0%"):
        assert said in shown


def test_gpus_and_host_are_drawn_and_summed_up(run_path: Path) -> None:
    add_telemetry(run_path, TWO, {})
    shown = str(show_machine(Run(run_path)))
    for said in ("GPU utilisation", "GPU temperature", "RTX 3090 (0)", "84 °C", "power cap 100.0%", "Host memory"):
        assert said in shown
    assert "Tesla K80 (1)" in shown
    assert "1.00% of a core" in shown


def test_where_the_manifest_tells_which_gpu_trained_the_others_are_left_out(run_path: Path) -> None:
    add_telemetry(run_path, TWO, {})
    manifest = json.loads((run_path / files.MANIFEST).read_text())
    manifest["hardware"]["uuid"] = "bb"
    (run_path / files.MANIFEST).write_text(json.dumps(manifest))
    shown = str(show_machine(Run(run_path)))
    assert "Tesla K80 (1)" in shown
    assert "RTX 3090" not in shown
    assert "GPU temperature" not in shown  # the older card has not given one


@pytest.mark.parametrize("reason", ["NVIDIA: no driver <library>"])
def test_without_gpus_the_page_says_why(run_path: Path, reason: str) -> None:
    add_telemetry(run_path, [], {"gpus": reason})
    shown = str(show_machine(Run(run_path)))
    assert "No readings of gpus: NVIDIA: no driver &lt;library&gt;." in shown
    assert "GPU utilisation" not in shown
    assert "Processor" in shown
