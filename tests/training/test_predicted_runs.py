from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seqfit


def test_a_run_without_a_strategy_follows_the_plan_and_is_measured_against_it(word_recipe: Any, tmp_path: Path) -> None:
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 3}}
    recipe.pop("strategy", None)
    run = seqfit.train(recipe, out=tmp_path / "run")
    prediction = json.loads((tmp_path / "run" / "manifest.json").read_text())["prediction"]
    assert prediction["predicted_peak_bytes"] > 0
    assert prediction["predicted_step_seconds"] > 0
    assert sum(prediction["predicted_parts"].values()) == pytest.approx(prediction["predicted_peak_bytes"], rel=0.01)
    assert prediction["measured_peak_bytes"] == pytest.approx(
        prediction["predicted_peak_bytes"], rel=0.05
    )  # by polynomial
    assert prediction["measured_peak_is"].startswith("allocated in step")
    assert prediction["measured_step_seconds"] > 0
    kinds = [event["kind"] for event in run.events()]
    assert "plan" in kinds
    assert "prediction" in kinds
    assert "name: planned" in (tmp_path / "run" / "strategy.yaml").read_text()


def test_a_stated_strategy_is_kept_and_predicted(word_recipe: Any, tmp_path: Path) -> None:
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 2}, "strategy": "baseline"}
    seqfit.train(recipe, out=tmp_path / "run")
    assert "name: baseline" in (tmp_path / "run" / "strategy.yaml").read_text()
    prediction = json.loads((tmp_path / "run" / "manifest.json").read_text())["prediction"]
    assert prediction["predicted_peak_bytes"] > 0


def test_a_run_corrects_the_next_prediction(word_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 40}}
    predictions = []
    for name in ("first", "second"):
        seqfit.train(recipe, out=tmp_path / name)
        predictions.append(json.loads((tmp_path / name / "manifest.json").read_text())["prediction"])
    first, second = predictions
    ratio = first["measured_step_seconds"] / first["predicted_step_seconds"]
    expected = first["predicted_step_seconds"] * min(max(ratio, 0.5), 3.0)
    assert second["predicted_step_seconds"] == pytest.approx(expected, rel=1e-6)
