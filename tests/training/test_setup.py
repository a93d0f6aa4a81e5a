from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from seqfit.model.load import load_model
from seqfit.parallel.world import World
from seqfit.recipe.schema import ModelRecipe
from seqfit.training import setup as job_module
from seqfit.training.measurement import RunPrediction
from seqfit.training.setup import build_setup
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

Recipe = dict[str, Any]

# What is built is the same without a plan, but for the test that makes its own.
pytestmark = pytest.mark.usefixtures("no_prediction")
TRIM = ["model.trim_vocabulary=data", "allow=[trim]"]


def test_trimming_picks_rows_while_loading(word_recipe: Recipe) -> None:
    job, data = build_setup(load_checked_recipe(word_recipe, TRIM), SilentView())
    words = job.generator.model.config.vocab_size
    assert words == len(job.generator.tokenizer) < 100
    assert max(int(data.splits["train"].token_ids(row)[0].max()) for row in range(64)) < words
    assert [kind for kind, _ in job.events if kind in ("trim", "fallback")] == ["trim"]


def test_a_model_that_had_to_be_loaded_whole_to_be_trimmed_is_an_event(word_recipe: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(word_recipe["model"]["path"], folder)
    torch.save(load_model(ModelRecipe(path=str(folder))).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    recipe = load_checked_recipe(word_recipe | {"model": {"path": str(folder)}}, TRIM)
    job, _ = build_setup(recipe, SilentView())
    reason = "the whole model was loaded and then trimmed: its weights are not safetensors"
    assert ("fallback", reason) in job.events


def test_a_plan_is_for_one_of_the_processes_on_its_machine(
    word_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    make_forecast = job_module.predict_run

    def remember(*given: Any, **options: Any) -> RunPrediction:
        asked.update(options)
        return make_forecast(*given, **options)

    monkeypatch.setattr(job_module, "predict_run", remember)
    job, _ = build_setup(load_checked_recipe(word_recipe), SilentView(), 2**40, World(local_size=4))
    assert (asked["sharers"], asked["memory_limit_bytes"]) == (4, 2**40)
    assert ("memory-limit", "the process may take 1.0 TiB") in job.events
