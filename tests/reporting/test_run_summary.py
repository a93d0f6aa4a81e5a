from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.reporting.runs import (
    ShownRun,
    counts_tensors,
    find_best,
    measured_peak,
    peaks_count_tensors,
    summarise_run,
    summarise_runs,
)
from seqfit.rundir import files

Edit = Callable[..., None]


def test_the_first_record_has_the_warm_up_and_does_not_count(run_path: Path, edit_lines: Edit) -> None:
    rates = {2: 10.0, 4: 1_000.0, 6: 1_020.0, 8: 1_010.0}
    edit_lines(run_path, files.STEPS, lambda line: line | {"tokens_per_second": rates.get(line["step"], 1_010.0)})
    assert summarise_run(ShownRun(run_path)).tokens_per_second == 1_010
    lines = (run_path / files.STEPS).read_text("utf-8").splitlines(keepends=True)
    (run_path / files.STEPS).write_text(lines[0], "utf-8")
    assert summarise_run(ShownRun(run_path)).tokens_per_second == 10  # better than nothing


def test_the_best_evaluation_is_not_the_one_before_training(run_path: Path, edit_lines: Edit) -> None:
    edit_lines(run_path, files.EVALUATIONS, lambda line: line | {"scores": {"f1": 99.0 if line["step"] == 0 else 5.0}})
    best = find_best(ShownRun(run_path))
    assert best is not None
    assert best["step"] == 80


def test_measured_tensors_go_before_what_records_say(run_path: Path, edit_manifest: Edit) -> None:
    assert measured_peak(ShownRun(run_path)) == (3_360_000_000, "resident memory of the process")
    assert not counts_tensors(ShownRun(run_path))
    edit_manifest(run_path, prediction={"measured_peak_bytes": 2**30, "measured_peak_is": "allocated in step 4"})
    assert measured_peak(ShownRun(run_path)) == (2**30, "allocated in step 4")
    assert counts_tensors(ShownRun(run_path))


def test_time_is_that_of_the_manifest_or_else_of_the_records(run_path: Path, edit_manifest: Edit) -> None:
    started = ShownRun(run_path).manifest["started"]
    assert summarise_run(ShownRun(run_path)).seconds == pytest.approx(800)
    edit_manifest(run_path, ended=started + 900)
    assert summarise_run(ShownRun(run_path)).seconds == pytest.approx(900)
    edit_manifest(run_path, ended=started - 900)  # a clock that was set back
    assert summarise_run(ShownRun(run_path)).seconds is None


def test_several_runs_are_averaged_over_those_that_have_a_figure(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Edit
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    edit_manifest(runs[0], prediction={"predicted_peak_bytes": 7})
    (runs[1] / files.STEPS).unlink()
    summary = summarise_runs([ShownRun(run) for run in runs])
    assert summary.predicted_bytes == 7
    assert summary.step_seconds == 1.9
    assert summary.score == pytest.approx(68.6, abs=0.1)


def test_without_measured_tensors_of_all_runs_the_records_of_all_count(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Edit
) -> None:
    runs = [ShownRun(make_run(tmp_path / name)) for name in ("a", "b")]
    edit_manifest(runs[0].path, prediction={"measured_peak_bytes": 2**30, "measured_peak_is": "allocated in step 4"})
    assert peaks_count_tensors(runs[:1])
    assert not peaks_count_tensors(runs)
    assert measured_peak(runs[0], tensors=False) == (3_360_000_000, "resident memory of the process")
    assert not counts_tensors(runs[0], tensors=False)
    assert summarise_runs(runs, tensors=False).peak_bytes == 3_360_000_000


def test_several_runs_are_judged_by_one_score(run_path: Path) -> None:
    assert summarise_run(ShownRun(run_path), score="em").score == pytest.approx(53.5, abs=0.1)
    assert find_best(ShownRun(run_path), "bleu") is None


def test_the_time_until_a_resume_is_left_out(run_path: Path, edit_manifest: Edit) -> None:
    started = ShownRun(run_path).manifest["started"]
    edit_manifest(run_path, ended=started + 90_000, resumed=[started + 80_000])
    assert summarise_run(ShownRun(run_path)).seconds == pytest.approx(90_000 - (80_000 - 800))
