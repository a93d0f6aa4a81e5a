from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from seqfit.checks import load_checked_recipe
from seqfit.model.build import load_model
from seqfit.recipe.schema import ModelRecipe
from seqfit.train.job import build_job
from seqfit.train.view import Silent

Recipe = dict[str, Any]
TRIM = ["model.trim_vocabulary=data", "allow=[trim]"]


def test_trimming_picks_rows_while_loading(word_recipe: Recipe) -> None:
    job, data = build_job(load_checked_recipe(word_recipe, TRIM), Silent())
    words = job.answerer.model.config.vocab_size
    assert words == len(job.answerer.tokenizer) < 100
    assert max(int(data.splits["train"].token_ids(row)[0].max()) for row in range(64)) < words
    assert [kind for kind, _ in job.events if kind in ("trim", "fallback")] == ["trim"]


def test_a_model_that_had_to_be_loaded_whole_to_be_trimmed_is_an_event(word_recipe: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(word_recipe["model"]["path"], folder)
    torch.save(load_model(ModelRecipe(path=str(folder))).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    recipe = load_checked_recipe(word_recipe | {"model": {"path": str(folder)}}, TRIM)
    job, _ = build_job(recipe, Silent())
    reason = "the whole model was loaded and then trimmed: its weights are not safetensors"
    assert ("fallback", reason) in job.events
