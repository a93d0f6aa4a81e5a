from __future__ import annotations

import json
from pathlib import Path

from seqfit.reporting.advice import show_advice
from seqfit.reporting.page import report
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def add_to_steps(run_path: Path, extra: dict[str, object]) -> None:
    lines = [json.loads(line) for line in (run_path / files.STEPS).read_text("utf-8").splitlines()]
    (run_path / files.STEPS).write_text("".join(json.dumps(line | extra) + "\n" for line in lines), "utf-8")


def calm_evaluations(run_path: Path) -> None:
    lines = [json.loads(line) for line in (run_path / files.EVALUATIONS).read_text("utf-8").splitlines()]
    (run_path / files.EVALUATIONS).write_text("".join(json.dumps(line | {"seconds": 1.0}) + "\n" for line in lines))


def test_a_finding_is_shown_with_evidence_override_and_gain(run_path: Path) -> None:
    calm_evaluations(run_path)
    add_to_steps(run_path, {"phase_seconds": {"data_wait": 1.9, "forward": 1.9}})  # of two steps of 1.9 s
    page = report(run_path).read_text("utf-8")
    shown = page[page.index("What to change") :]
    assert "waiting for data" in shown
    assert "50.0% of a step is spent waiting for the next batch" in shown
    assert "50.0% of the time" in shown


def test_the_largest_gain_comes_first_and_can_be_pasted(run_path: Path) -> None:
    (run_path / files.STRATEGY).write_text("batching: grouped\n", "utf-8")  # as a plan has chosen, not the recipe
    add_to_steps(run_path, {"phase_seconds": {"data_wait": 0.5, "forward": 3.3}, "padding_share": 0.8})
    shown = str(show_advice(read_report_subject([run_path])))
    assert shown.index("padding") < shown.index("waiting for data")
    assert "<code>strategy.batching=packed</code>" in shown


def test_threads_beyond_the_cores_are_known_from_the_manifest(run_path: Path) -> None:
    manifest = json.loads((run_path / files.MANIFEST).read_text("utf-8"))
    manifest["hardware"] |= {"cores": 2, "threads": 16}
    (run_path / files.MANIFEST).write_text(json.dumps(manifest), "utf-8")
    add_to_steps(run_path, {"phase_seconds": {"forward": 1.9, "backward": 1.9}})
    assert "strategy.threads=2" in str(show_advice(read_report_subject([run_path])))


def test_where_nothing_is_found_the_part_is_left_out(run_path: Path) -> None:
    calm_evaluations(run_path)
    assert show_advice(read_report_subject([run_path])) is None
    assert "What to change" not in report(run_path).read_text("utf-8")


def test_of_several_runs_each_has_its_first_finding(comparison_path: Path) -> None:
    for run in (comparison_path / "runs").glob("baseline-*"):
        add_to_steps(run, {"phase_seconds": {"data_wait": 1.9, "forward": 1.9}})
    for run in (comparison_path / "runs").iterdir():
        calm_evaluations(run)
    shown = str(show_advice(read_report_subject([comparison_path])))
    assert "<td>baseline</td>" in shown
    assert "<td>bf16</td>" not in shown


def test_without_a_recipe_there_is_no_advice(run_path: Path) -> None:
    (run_path / files.RECIPE).unlink()
    assert show_advice(read_report_subject([run_path])) is None
