from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.overview import show_overview
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def test_the_score_is_shown_with_that_before_fine_tuning(run_path: Path) -> None:
    shown = str(show_overview(read_report_subject([run_path])))
    assert "F1, validation" in shown
    assert "before fine-tuning 3.0" in shown
    assert '<div class="value">67.9</div>' in shown  # on test, by seqfit evaluate


def test_an_evaluation_before_fine_tuning_of_as_many_rows_is_compared(run_path: Path) -> None:
    before = {"split": "test", "step": 0, "metrics": {"em": 0.3, "f1": 4.4}, "predictions": []}
    (run_path / files.evaluation("test", before=True)).write_text(json.dumps(before), "utf-8")
    assert "before fine-tuning 4.4" in str(show_overview(read_report_subject([run_path])))
    (run_path / files.evaluation("test", before=True)).write_text(json.dumps({**before, "rows": 3}), "utf-8")
    assert "before fine-tuning 4.4" not in str(show_overview(read_report_subject([run_path])))


def test_memory_is_shown_with_the_prediction(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, prediction={"predicted_peak_bytes": 3 * 2**30, "measured_peak_bytes": 2**31})
    shown = str(show_overview(read_report_subject([run_path])))
    assert '<div class="value">2.0 GiB</div>' in shown
    assert "predicted 3.0 GiB" in shown


def test_several_runs_are_a_table_of_what_differs_and_what_it_cost(
    tmp_path: Path, make_run: Callable[[Path], Path]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\nmicro_batch_tokens: 99\n")
    shown = str(show_overview(read_report_subject(runs)))
    for said in ("strategy.precision", "bf16", "fp32", "strategy.micro_batch_tokens", "best F1", "68.6", "peak memory"):
        assert said in shown
    assert "var(--series-2)" in shown


def test_long_values_are_known_by_their_ends(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text(f"precision: {'x' * 60}end\n")
    assert f"…{'x' * 25}end" in str(show_overview(read_report_subject(runs)))


def test_a_comparison_has_its_own_table(comparison_path: Path) -> None:
    assert show_overview(read_report_subject([comparison_path])) is None


def test_a_column_holds_one_score_and_one_kind_of_memory(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    recipe = load_recipe(runs[1] / files.RECIPE, ["eval.best=em"])
    (runs[1] / files.RECIPE).write_text(dump_recipe(recipe), "utf-8")
    edit_manifest(runs[1], prediction={"measured_peak_bytes": 2**30})
    shown = str(show_overview(read_report_subject(runs)))
    assert "best F1" in shown
    assert shown.count("68.6") == 2
    assert shown.count("3.1 GiB") == 2
