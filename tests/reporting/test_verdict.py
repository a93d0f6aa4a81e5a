from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.overview import describe_run, describe_subject, find_run_differences
from seqfit.reporting.runs import ShownRun
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files

Edit = Callable[..., None]


def test_a_finished_run_in_one_sentence(run_path: Path, edit_manifest: Edit) -> None:
    started = ShownRun(run_path).manifest["started"]
    prediction = {"predicted_peak_bytes": 3 * 2**30, "measured_peak_bytes": int(3.3 * 2**30)}
    edit_manifest(run_path, ended=started + 800, total_steps=400, prediction=prediction)
    assert describe_run(ShownRun(run_path)) == (
        "Finished 400 steps in 13 min 20 s: F1 68.6 on validation, best at step 400 (3.0 before fine-tuning); "
        "peak memory 3.3 GiB, 10.0% above the predicted 3.0 GiB."
    )


def test_a_prediction_that_is_met_is_reported_as_such(run_path: Path, edit_manifest: Edit) -> None:
    edit_manifest(run_path, prediction={"predicted_peak_bytes": 2**30, "measured_peak_bytes": 2**30 + 1000})
    assert "peak memory 1.0 GiB, as predicted." in describe_run(ShownRun(run_path))


@pytest.mark.parametrize(
    ("status", "said"), [("failed", "Failed at step 400 of 900"), ("running", "Died at step 400 of 900")]
)
def test_how_far_a_run_came_that_did_not_finish(status: str, said: str, run_path: Path, edit_manifest: Edit) -> None:
    edit_manifest(run_path, status=status, total_steps=900)
    assert describe_run(ShownRun(run_path)).startswith(f"{said}: F1 68.6 on validation")


def test_a_run_without_any_record_says_so(run_path: Path) -> None:
    for name in (files.STEPS, files.EVALUATIONS):
        (run_path / name).unlink()
    assert describe_run(ShownRun(run_path)) == "Finished; no step is recorded."


def test_several_runs_are_described_by_what_differs_without_a_claim(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_lines: Edit
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    recipe = load_recipe(runs[1] / files.RECIPE, ["train.learning_rate=1e-3"])
    (runs[1] / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    edit_lines(runs[1], files.STEPS, lambda line: line | {"tokens_per_second": 9_000.0, "memory_bytes": 2 * 2**30})
    subject = read_report_subject(runs)
    assert find_run_differences(subject) == {"train.learning_rate": [3e-4, 1e-3]}
    assert describe_subject(subject) == (
        "2 runs differ in train.learning_rate; best F1: a (68.6), most tokens/s: b (9000), "
        "least memory: b (2.0 GiB). Use seqfit compare for a fair comparison."
    )


def test_seeds_alone_are_no_difference(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    assert describe_subject(read_report_subject(runs)) == "2 runs that have the same configuration."
    recipe = load_recipe(runs[1] / files.RECIPE, ["seed=7"])
    (runs[1] / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    assert describe_subject(read_report_subject(runs)) == "2 runs that differ only in their seeds."


def test_a_comparison_has_its_own_verdict(comparison_path: Path) -> None:
    assert (
        describe_subject(read_report_subject([comparison_path])) == "recompute takes 34% less memory for 26% more time."
    )


def test_nothing_yet_is_reported(tmp_path: Path) -> None:
    assert describe_subject(read_report_subject([tmp_path])) == "Nothing to show yet."


def test_the_best_of_several_runs_are_best_at_the_same_thing(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Edit
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    recipe = load_recipe(runs[1] / files.RECIPE, ["eval.best=em", "train.learning_rate=1e-3"])
    (runs[1] / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    (runs[0] / files.EVALUATIONS).write_text("")  # its score is the loss, and it has none
    assert "best loss: b (1.210)" in describe_subject(read_report_subject(runs))
    edit_manifest(runs[0], prediction={"measured_peak_bytes": 2**30})  # of tensors: b has the process's alone
    assert "least memory: a (3.1 GiB)" in describe_subject(read_report_subject(runs))
