from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RunError
from seqfit.planning.prediction import LongRows, RunPrediction
from seqfit.recipe.load import dump_recipe
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.reader import Run
from seqfit.training import setup as training_setup
from seqfit.training.resume import check_same_recipe
from seqfit.training.setup import build_setup, resolve_recipe
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

pytestmark = pytest.mark.usefixtures("no_prediction")
SLOW = LongRows("a step is predicted to take 1 h 00 min", 3, 0.95, "Change it")


@pytest.fixture
def slow_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    predict_run = training_setup.predict_run

    def make(recipe: Recipe, *given: Any, **options: Any) -> RunPrediction:
        made: RunPrediction = predict_run(recipe, *given, **options)
        return replace(made, long_rows=SLOW if recipe.task.max_source_tokens is None else None)

    monkeypatch.setattr(training_setup, "predict_run", make)


@pytest.mark.usefixtures("slow_prediction")
def test_a_guessed_recipe_gets_the_limit_and_a_stated_one_a_warning(word_recipe: dict[str, Any]) -> None:
    recipe = load_checked_recipe(word_recipe)
    setup, data = build_setup(resolve_recipe(recipe), SilentView(), is_guessed=True)
    assert setup.recipe.task.max_source_tokens == 3
    assert data.splits["train"].source_lengths.max() == 3
    assert ("lengths", SLOW.explain_limit()) in setup.events
    setup, _ = build_setup(resolve_recipe(recipe), SilentView())
    assert setup.recipe == recipe
    assert ("lengths", "a step is predicted to take 1 h 00 min. Change it") in setup.events


def test_a_run_with_a_guessed_limit_is_resumed_by_the_same_command(word_recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe = load_checked_recipe(word_recipe)
    limited = load_checked_recipe(word_recipe, ["task.max_source_tokens=3"])
    (tmp_path / files.RECIPE).write_text(dump_recipe(limited), "utf-8")
    (tmp_path / files.MANIFEST).write_text("{}", "utf-8")
    check_same_recipe(Run(tmp_path), recipe, is_guessed=True)
    with pytest.raises(RunError):
        check_same_recipe(Run(tmp_path), recipe)
