from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.reporting.machine import show_machine
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files

TWO = [
    {"gpu": 0, "name": "RTX 3090", "uuid": "GPU-aa", "memory_bytes": 24 * 2**30},
    {"gpu": 1, "name": "Tesla K80", "uuid": "GPU-bb", "memory_bytes": 12 * 2**30},
]
Add = Callable[..., None]


def chart_of(shown: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*?)</script>', shown, re.DOTALL)
    assert found is not None
    chart: dict[str, Any] = json.loads(found[1])["minutes"]
    return chart


def test_a_run_without_telemetry_has_no_such_part(run_path: Path) -> None:
    assert show_machine(read_report_subject([run_path])) is None


def test_all_quantities_share_one_time_axis(run_path: Path, add_telemetry: Add) -> None:
    add_telemetry(run_path, TWO, {})
    layout = chart_of(str(show_machine(read_report_subject([run_path]))))["layout"]
    titles = [layout[f"yaxis{number}"]["title"]["text"] for number in ("", 2, 3, 4)]
    assert titles == ["utilisation", "memory", "temperature, °C", "power, W"]
    assert {layout[f"xaxis{number}"].get("matches") for number in ("", 2, 3)} == {"x4"}
    assert layout["xaxis4"]["title"]["text"] == "minutes"
    assert layout["height"] > 4 * 100


def test_evaluations_and_snapshots_are_shaded_through_all_rows(
    run_path: Path, add_telemetry: Add, edit_lines: Add
) -> None:
    add_telemetry(run_path, TWO, {})
    edit_lines(
        run_path, files.STEPS, lambda line: line | {"phase_seconds": {"snapshot": 1.0 if line["step"] == 20 else 0}}
    )
    shown = str(show_machine(read_report_subject([run_path])))
    assert "shaded: evaluation, snapshot (time estimated from the steps around it)" in shown
    shapes = chart_of(shown)["layout"]["shapes"]
    assert len(shapes) == 7
    assert {shape["yref"] for shape in shapes} == {"paper"}


def test_gpus_and_host_are_drawn_and_summed_up(run_path: Path, add_telemetry: Add) -> None:
    add_telemetry(run_path, TWO, {})
    shown = str(show_machine(read_report_subject([run_path])))
    for said in ("RTX 3090 (0)", "84 °C", "power cap 100.0%", "Tesla K80 (1)", "1.00% of a core", "host"):
        assert said in shown
    listed = [trace["name"] for trace in chart_of(shown)["data"] if trace["showlegend"]]
    assert listed == ["RTX 3090 (0)", "Tesla K80 (1)", "host"]


def test_where_the_manifest_tells_which_gpu_trained_the_others_are_left_out(
    run_path: Path, add_telemetry: Add, edit_manifest: Add
) -> None:
    add_telemetry(run_path, TWO, {})
    edit_manifest(run_path, hardware={"device": "cuda", "uuid": "bb"})
    shown = str(show_machine(read_report_subject([run_path])))
    assert "Tesla K80 (1)" in shown
    assert "RTX 3090" not in shown
    assert "temperature, °C" not in shown  # the older card has not reported one


def test_of_several_processes_all_cards_are_shown(run_path: Path, add_telemetry: Add, edit_manifest: Add) -> None:
    add_telemetry(run_path, TWO, {})
    edit_manifest(run_path, hardware={"device": "cuda", "uuid": "bb"}, launch="here-1")
    shown = str(show_machine(read_report_subject([run_path])))
    assert "Tesla K80 (1)" in shown
    assert "RTX 3090 (0)" in shown


def test_of_several_processes_with_a_list_the_others_are_left_out(
    run_path: Path, add_telemetry: Add, edit_manifest: Add
) -> None:
    add_telemetry(run_path, TWO, {})
    edit_manifest(run_path, hardware={"device": "cuda", "uuid": "bb", "uuids": ["bb", "elsewhere"]}, launch="here-1")
    shown = str(show_machine(read_report_subject([run_path])))
    assert "Tesla K80 (1)" in shown
    assert "RTX 3090" not in shown


@pytest.mark.parametrize("reason", ["NVIDIA: no driver <library>"])
def test_without_gpus_the_page_says_why(run_path: Path, reason: str, add_telemetry: Add) -> None:
    add_telemetry(run_path, [], {"gpus": reason})
    shown = str(show_machine(read_report_subject([run_path])))
    assert "No GPU readings: NVIDIA: no driver &lt;library&gt;." in shown
    assert "utilisation" in shown
    assert "power" not in shown


def test_several_runs_are_drawn_together_and_those_without_telemetry_named(
    comparison_path: Path, add_telemetry: Add
) -> None:
    runs = sorted((comparison_path / "runs").iterdir())
    for run in runs[1:]:
        add_telemetry(run, [], {})
    shown = str(show_machine(read_report_subject([comparison_path])))
    assert f"No telemetry: {runs[0].name}." in shown
    listed = [trace["name"] for trace in chart_of(shown)["data"] if trace["showlegend"]]
    assert sorted(listed) == ["baseline", "bf16", "recompute"]  # of bf16 the second seed has telemetry
