from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqfit.reporting.costs import show_time
from seqfit.reporting.page import report
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files

PHASES = {"phase_seconds": {"forward": 1.2, "backward": 2.4}, "padding_share": 0.125}
PHASES |= {"model_flops_per_second": 7.1e12, "mfu": 0.1}


def test_a_run_without_phases_has_no_such_part(run_path: Path) -> None:
    assert show_time(read_report_subject([run_path])) is None
    assert "Where the time went" not in report(run_path).read_text("utf-8")


def test_the_phases_are_a_table_with_the_longest_first(run_path: Path, edit_lines: Callable[..., None]) -> None:
    edit_lines(run_path, files.STEPS, lambda line: line | PHASES)
    shown = str(show_time(read_report_subject([run_path])))
    listed = shown[shown.index("<tbody>") :]
    assert listed.index("backward") < listed.index("forward") < listed.index("other")
    for said in ("8 min 00 s", "63.2%", "12.5%", "7.1 TFLOP/s", "10.0%"):
        assert said in shown


def test_the_time_per_step_is_shown_with_the_prediction(
    run_path: Path, edit_lines: Callable[..., None], edit_manifest: Callable[..., None]
) -> None:
    edit_lines(run_path, files.STEPS, lambda line: line | PHASES)
    edit_manifest(run_path, prediction={"predicted_step_seconds": 2.0})
    assert "<dd>1.9 s, predicted 2.0 s</dd>" in str(show_time(read_report_subject([run_path])))


def test_a_step_is_a_bar_in_the_order_of_its_phases(run_path: Path, edit_lines: Callable[..., None]) -> None:
    edit_lines(run_path, files.STEPS, lambda line: line | PHASES)
    shown = str(show_time(read_report_subject([run_path])))
    chart = shown[shown.index("application/json") :]
    assert chart.index('"forward"') < chart.index('"backward"')
    assert "1.9 s" in chart  # of two steps: 0.6 + 1.2 + 0.1 other


def test_of_several_groups_each_has_a_row(comparison_path: Path, edit_lines: Callable[..., None]) -> None:
    for run in (comparison_path / "runs").iterdir():
        edit_lines(run, files.STEPS, lambda line: line | PHASES)
    shown = str(show_time(read_report_subject([comparison_path])))
    for way in ("baseline", "recompute", "bf16"):
        assert f"<td>{way}</td>" in shown
    assert "<td>ddp2</td>" not in shown
