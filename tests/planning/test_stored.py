from __future__ import annotations

import json
import os
from pathlib import Path

from seqfit.planning.report import Explained, MemoryPart, PlannedStrategy, PlanReport, find_plan, plan_key, store_plan
from seqfit.recipe.load import load_recipe

WAY = PlannedStrategy("fp32", "one device", 4096, 1.0, 10, 0.5, True, ["strategy.precision=fp32"])
EXPLAINED = Explained(
    "fp32", 8, 9, 1, True, "weights", [MemoryPart("weights", 8, [MemoryPart("all", 8)])], ["forward"], {"weights": [8]}
)
ANSWER = PlanReport(
    "card", "gpu", 100, 50.0, 10, "data sheet", WAY, None, EXPLAINED, [WAY], [WAY], [("bf16", "no")], []
)


def make_recipe(folder: Path) -> dict[str, object]:
    (folder / "data.jsonl").write_text('{"q": "a", "a": "b"}\n')
    return {
        "model": {"path": str(folder)},
        "task": {"name": "qa", "source": "{q}", "target": "{a}"},
        "data": {"path": str(folder / "data.jsonl")},
    }


def test_an_answer_survives_being_stored() -> None:
    store_plan("key", ANSWER)
    assert find_plan("key") == ANSWER
    assert json.loads(json.dumps(ANSWER.to_json()))["chosen"]["label"] == "fp32"


def test_what_was_never_stored_or_is_damaged_counts_as_none() -> None:
    assert find_plan("never") is None
    store_plan("torn", ANSWER)
    path = Path(os.environ["SEQFIT_CACHE"]) / "plans" / "torn.json"
    path.write_text(path.read_text()[:50])
    assert find_plan("torn") is None


def test_a_key_changes_with_recipe_data_and_target(tmp_path: Path) -> None:
    recipe = load_recipe(make_recipe(tmp_path))
    key = plan_key(recipe, {"gpu": "t4"})
    assert key == plan_key(recipe, {"gpu": "t4"})
    assert key != plan_key(recipe, {"gpu": "l4"})
    assert key != plan_key(load_recipe(make_recipe(tmp_path), ["train.batch_examples=7"]), {"gpu": "t4"})
    (tmp_path / "data.jsonl").write_text('{"q": "a", "a": "longer"}\n')
    assert key != plan_key(recipe, {"gpu": "t4"})
