from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from seqfit.planning.report import (
    MemoryPart,
    PeakBreakdown,
    PlannedEvaluation,
    PlannedStrategy,
    PlanReport,
    Refusal,
    find_plan,
    plan_key,
    store_plan,
)
from seqfit.recipe.load import load_recipe

STRATEGY = PlannedStrategy("fp32", "one GPU", 4096, 1.0, 10, 0.5, True, ["strategy.precision=fp32"])
PEAK = PeakBreakdown(
    "fp32", 8, 9, 1, True, "weights", [MemoryPart("weights", 8, [MemoryPart("all", 8)])], ["forward"], {"weights": [8]}
)
REPORT = PlanReport(
    "card",
    "gpu",
    100,
    50.0,
    10,
    "data sheet",
    STRATEGY,
    None,
    PEAK,
    [STRATEGY],
    [STRATEGY],
    [Refusal("bf16", "no")],
    [],
)


def make_recipe(folder: Path) -> dict[str, object]:
    (folder / "data.jsonl").write_text('{"q": "a", "a": "b"}\n')
    return {
        "model": {"path": str(folder)},
        "task": {"name": "qa", "source": "{q}", "target": "{a}"},
        "data": {"path": str(folder / "data.jsonl")},
    }


def test_a_report_survives_being_stored() -> None:
    store_plan("key", REPORT)
    assert find_plan("key") == REPORT
    assert json.loads(json.dumps(REPORT.to_json()))["chosen"]["label"] == "fp32"


def test_evaluations_count_in_the_hours_and_a_line_says_how_much() -> None:
    evaluated = replace(REPORT, evaluation=PlannedEvaluation(3, 1000, 4, 80, 65.0, 5 * 2**30, is_peak=True))
    assert REPORT.total_seconds == 10 * 0.5
    assert evaluated.total_seconds == 10 * 0.5 + 65.0
    expected = "evaluation: 1 min 05 s of 1 min 10 s (3 times 1,000 rows, 4 beams); memory 5.0 GiB, the peak"
    assert evaluated.describe_evaluation() == expected
    assert REPORT.describe_evaluation() is None
    assert PlanReport.from_json(json.loads(json.dumps(evaluated.to_json()))) == evaluated


def test_what_was_never_stored_or_is_corrupted_counts_as_none() -> None:
    assert find_plan("never") is None
    store_plan("truncated", REPORT)
    path = Path(os.environ["SEQFIT_CACHE"]) / "plans-4" / "truncated.json"
    path.write_text(path.read_text()[:50])
    assert find_plan("truncated") is None


def test_a_key_changes_with_recipe_data_and_target(tmp_path: Path) -> None:
    recipe = load_recipe(make_recipe(tmp_path))
    key = plan_key(recipe, {"gpu": "t4"})
    assert key == plan_key(recipe, {"gpu": "t4"})
    assert key != plan_key(recipe, {"gpu": "l4"})
    assert key != plan_key(load_recipe(make_recipe(tmp_path), ["train.batch_examples=7"]), {"gpu": "t4"})
    (tmp_path / "data.jsonl").write_text('{"q": "a", "a": "longer"}\n')
    assert key != plan_key(recipe, {"gpu": "t4"})
