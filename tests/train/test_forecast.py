from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seqfit


@pytest.mark.forecast
def test_a_run_without_a_strategy_follows_the_plan_and_is_measured_against_it(word_recipe: Any, tmp_path: Path) -> None:
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 3}}
    recipe.pop("strategy", None)
    run = seqfit.train(recipe, out=tmp_path / "run")
    forecast = json.loads((tmp_path / "run" / "manifest.json").read_text())["forecast"]
    assert forecast["predicted_peak_bytes"] > 0
    assert forecast["predicted_step_seconds"] > 0
    assert forecast["measured_peak_bytes"] > 0
    assert forecast["measured_step_seconds"] > 0
    kinds = [event["kind"] for event in run.events()]
    assert "plan" in kinds
    assert "forecast" in kinds
    assert "name: planned" in (tmp_path / "run" / "strategy.yaml").read_text()


@pytest.mark.forecast
def test_a_stated_strategy_is_kept_and_predicted(word_recipe: Any, tmp_path: Path) -> None:
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 2}, "strategy": "vanilla"}
    seqfit.train(recipe, out=tmp_path / "run")
    assert "name: vanilla" in (tmp_path / "run" / "strategy.yaml").read_text()
    forecast = json.loads((tmp_path / "run" / "manifest.json").read_text())["forecast"]
    assert forecast["predicted_peak_bytes"] > 0
