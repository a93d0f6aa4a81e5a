from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seqfit.data.tokenized import TokenizedSplit
from seqfit.errors import RunError
from seqfit.model.families.family import read_model_shape
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.reader import Run
from seqfit.training import setup as training_setup
from seqfit.training.measurement import LongRows, RunPrediction, estimate_step_seconds, find_long_rows
from seqfit.training.resume import check_same_recipe
from seqfit.training.setup import build_setup, resolve
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

pytestmark = pytest.mark.usefixtures("no_prediction")
T5 = {
    "model_type": "t5", "d_model": 512, "num_heads": 8, "d_kv": 64, "num_layers": 6, "d_ff": 2048,
    "feed_forward_proj": "relu", "vocab_size": 32128,
}  # fmt: skip


def _split(*lengths: int) -> TokenizedSplit:
    sources = np.array(lengths, dtype=np.int32)
    return SimpleNamespace(source_lengths=sources, target_lengths=np.full_like(sources, 8))  # type: ignore[return-value]


def _recipe(**train: Any) -> Recipe:
    task = {"name": "qa", "source": "{text}", "target": "{answer}"}
    return load_recipe({"model": {"path": "m"}, "task": task, "data": {"path": "d"}, "train": train})


LONG = _split(*[200] * 96, *[30_000] * 4)


def test_a_short_step_that_fits_is_not_reported() -> None:
    assert find_long_rows(_recipe(), LONG, T5, step_seconds=59.0) is None
    assert find_long_rows(_recipe(), LONG, T5, step_seconds=None) is None


def test_the_limit_keeps_95_percent_of_the_rows_whole() -> None:
    found = find_long_rows(_recipe(), LONG, T5, step_seconds=3600.0)
    assert found is not None
    assert (found.limit, found.whole) == (200, 0.96)
    assert found.explain_limit() == (
        "task.max_source_tokens=200 is set because a step is predicted to take 1 h 00 min, with sources of up to "
        "30,000 tokens (95% of the rows have at most 200); 96.0% of the training rows stay whole. A value that you set "
        "is kept"
    )
    assert re.search(r"task\.max_source_tokens=\d+ takes about .* and truncates 4\.0% of the rows", found.warn())


def test_rows_that_are_all_long_get_advice_on_a_shorter_limit_and_its_cost() -> None:
    found = find_long_rows(_recipe(), _split(*[9000] * 50, *[10_000] * 50), T5, step_seconds=600.0)
    assert found is not None
    assert found.limit is None
    assert "task.max_source_tokens=2048 takes about" in found.warn()
    assert "per step and truncates 100.0% of the rows; fewer rows per step" in found.warn()
    hopeless = find_long_rows(_recipe(), _split(*[100] * 5), T5, step_seconds=600.0)
    assert hopeless is not None
    assert "No length limit brings it below a minute" in hopeless.warn()


def test_missing_memory_is_reported() -> None:
    found = find_long_rows(_recipe(), LONG, T5, step_seconds=2.0, missing_bytes=3 * 2**30)
    assert found is not None
    assert found.warn() == (
        "a step is predicted to need 3.0 GiB more memory than is available, with sources of up to 30,000 tokens (95% "
        "of the rows have at most 200). task.max_source_tokens=200 or a smaller task.max_source_tokens needs less "
        "memory; `seqfit plan` shows what fits"
    )


def test_a_limit_that_the_user_set_is_kept() -> None:
    recipe = load_recipe(_recipe(), ["task.max_source_tokens=50000"])
    found = find_long_rows(recipe, LONG, T5, step_seconds=3600.0)
    assert found is not None
    assert found.limit is None


@pytest.mark.parametrize("train", [{"batch_examples": 50}, {"batch_tokens": 50 * 1008}])
def test_without_a_prediction_the_flops_of_a_mean_step_are_a_lower_bound(train: dict[str, int]) -> None:
    split = _split(*[1000] * 100)
    seconds = estimate_step_seconds(_recipe(**train).train, split, T5, flops_per_second=1e12)
    shape, _ = read_model_shape(T5)
    assert shape is not None
    assert seconds == pytest.approx(shape.training_flops([1000] * 50, [8] * 50) / 1e12)
    assert estimate_step_seconds(_recipe().train, split, {"model_type": "other"}, 1e12) is None
    found = find_long_rows(_recipe(), split, T5, step_seconds=100.0, is_estimate=True)
    assert found is not None
    assert found.problem.startswith("a step is predicted to take at least 1 min 40 s")


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
    setup, data = build_setup(resolve(recipe), SilentView(), is_guessed=True)
    assert setup.recipe.task.max_source_tokens == 3
    assert data.splits["train"].source_lengths.max() == 3
    assert ("lengths", SLOW.explain_limit()) in setup.events
    setup, _ = build_setup(resolve(recipe), SilentView())
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
