from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqfit.reporting.scores import find_common, minutes_to, show_quality
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def test_the_example_of_the_docstring_holds() -> None:
    curves = {"baseline": [[(3.0, 60.0), (6.0, 75.0), (9.0, 80.0)]], "bf16": [[(4.2, 74.5), (8.1, 78.0)]]}
    common = find_common(curves, "f1")
    assert common == 78
    reached = {
        way: [minutes_to(points, share * common, "f1") for share in (0.95, 0.99)] for way, (points,) in curves.items()
    }
    assert reached == {"baseline": [6.0, 9.0], "bf16": [4.2, 8.1]}


def test_a_loss_is_reached_from_above() -> None:
    curves = {"a": [[(1.0, 2.0), (2.0, 1.0)]], "b": [[(1.0, 1.5)]]}
    assert find_common(curves, "loss") == 1.5
    assert minutes_to(curves["a"][0], 1.6, "loss") == 2.0
    assert minutes_to(curves["b"][0], 1.0, "loss") is None


def test_a_single_group_has_no_common_score(run_path: Path) -> None:
    assert show_quality(read_report_subject([run_path])) is None


def test_seeds_are_averaged_and_those_that_never_get_there_counted(
    comparison_path: Path, edit_lines: Callable[..., None]
) -> None:
    poor = comparison_path / "runs" / "bf16-seed1-repeat0"
    edit_lines(poor, files.EVALUATIONS, lambda line: line | {"scores": {"f1": 0.5 * line["scores"]["f1"]}})
    shown = str(show_quality(read_report_subject([comparison_path])))
    assert "Time to quality" in shown
    assert "(95%)" in shown
    assert "(1 of 2 seeds)" in shown


def test_a_target_that_nobody_but_one_reaches_is_none(comparison_path: Path) -> None:
    for name in ("baseline", "recompute"):
        for run in (comparison_path / "runs").glob(f"{name}-*"):
            (run / files.EVALUATIONS).unlink()
    assert show_quality(read_report_subject([comparison_path])) is None


def test_runs_that_were_scored_at_their_end_alone_have_no_such_part(
    comparison_path: Path,
) -> None:
    for run in (comparison_path / "runs").iterdir():
        lines = (run / files.EVALUATIONS).read_text("utf-8").splitlines(keepends=True)
        (run / files.EVALUATIONS).write_text(lines[-1], "utf-8")
    assert show_quality(read_report_subject([comparison_path])) is None


def test_the_model_before_training_does_not_count(comparison_path: Path, edit_lines: Callable[..., None]) -> None:
    for run in (comparison_path / "runs").iterdir():
        edit_lines(run, files.EVALUATIONS, lambda line: line | ({"scores": {"f1": 99.0}} if line["step"] == 0 else {}))
    assert "99.0" not in str(show_quality(read_report_subject([comparison_path])))
