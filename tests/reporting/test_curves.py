from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.curves import show_curves
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def charts(shown: str) -> dict[str, dict[str, Any]]:
    """Name of a figure -> axis -> chart."""
    found = re.findall(
        r'<figure data-name="([^"]+)">.*?<script type="application/json">(.*?)</script>', shown, re.DOTALL
    )
    return {name: json.loads(data) for name, data in found}


def names(chart: dict[str, Any]) -> list[str]:
    return [trace["name"] for trace in chart["data"]]


def test_loss_and_scores_can_be_seen_over_steps_minutes_and_tokens(run_path: Path) -> None:
    drawn = charts(str(show_curves(read_report_subject([run_path]))))
    for name in ("loss", "scores"):
        assert list(drawn[name]) == ["step", "minutes", "tokens"]
    last = [max(trace["x"][-1] for trace in chart["data"]) for chart in drawn["loss"].values()]
    assert last[0] == 400
    assert 13 < last[1] < 14
    assert 3_000_000 < last[2] < 3_300_000


def test_of_one_run_the_accent_has_validation_and_the_score_that_counts(run_path: Path) -> None:
    drawn = charts(str(show_curves(read_report_subject([run_path]))))
    assert names(drawn["loss"]["step"]) == ["train, each record", "train, smoothed", "validation"]
    assert drawn["loss"]["step"]["data"][2]["line"]["color"] == "var(--accent)"
    assert names(drawn["scores"]["step"]) == ["F1", "exact match"]
    assert [trace["line"]["color"] for trace in drawn["scores"]["step"]["data"]] == ["var(--accent)", "var(--neutral)"]


def test_a_short_curve_is_drawn_as_it_is(run_path: Path) -> None:
    lines = (run_path / files.STEPS).read_text("utf-8").splitlines(keepends=True)
    (run_path / files.STEPS).write_text("".join(lines[:5]), "utf-8")
    drawn = charts(str(show_curves(read_report_subject([run_path]))))
    assert names(drawn["loss"]["step"]) == ["train", "validation"]


def test_seeds_of_one_group_share_its_colour_and_one_entry_of_the_legend(
    tmp_path: Path, make_run: Callable[[Path], Path]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b", "c")]
    for run, override in ((runs[1], "seed=7"), (runs[2], "train.learning_rate=1e-3")):
        (run / files.RECIPE).write_text(dump_recipe(load_recipe(run / files.RECIPE, [override])), "utf-8")
    drawn = charts(str(show_curves(read_report_subject(runs))))
    assert set(drawn) == {"loss", "f1", "em", "learning-rate", "tokens-per-second", "gradient-norm", "memory-bytes"}
    data = drawn["f1"]["step"]["data"]
    assert [trace["line"]["color"] for trace in data] == ["var(--series-1)", "var(--series-1)", "var(--series-2)"]
    assert [trace["showlegend"] for trace in data] == [True, False, True]
    losses = drawn["loss"]["step"]["data"]
    assert {trace["legendgroup"] for trace in losses} == {"a (2 seeds)", "c"}


def test_an_other_series_that_was_never_recorded_is_left_out(run_path: Path, edit_lines: Callable[..., None]) -> None:
    edit_lines(run_path, files.STEPS, lambda line: line | {"learning_rate": None})
    assert "learning-rate" not in charts(str(show_curves(read_report_subject([run_path]))))


def test_a_run_without_records_has_no_curves(run_path: Path) -> None:
    (run_path / files.STEPS).unlink()
    (run_path / files.EVALUATIONS).unlink()
    assert show_curves(read_report_subject([run_path])) is None


def test_ten_long_runs_stay_small(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / f"run{number}") for number in range(10)]
    for number, run in enumerate(runs):
        line = json.loads((run / files.STEPS).read_text("utf-8").splitlines()[0])
        steps = [json.dumps(line | {"step": step, "loss": 1 / step}) for step in range(1, 5_001)]
        (run / files.STEPS).write_text("\n".join(steps) + "\n")
        (run / files.STRATEGY).write_text(f"micro_batch_tokens: {number + 1}\n")
    assert len(str(show_curves(read_report_subject(runs)))) < 700_000
