from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import seqfit
from seqfit.model.load import load_model
from seqfit.parallel.world import World
from seqfit.planning.prediction import RunPrediction
from seqfit.recipe import load as load_module
from seqfit.recipe.schema import ModelRecipe
from seqfit.rundir.records import FallbackEvent
from seqfit.training import setup as training_setup
from seqfit.training.setup import build_setup, resolve_recipe
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

Recipe = dict[str, Any]

# What is built is the same without a plan, but for the test that makes its own.
pytestmark = pytest.mark.usefixtures("no_prediction")
TRIM = ["model.trim_vocabulary=data", "allow=[trim]"]


def test_trimming_picks_rows_while_loading(word_recipe: Recipe) -> None:
    setup, data = build_setup(resolve_recipe(load_checked_recipe(word_recipe, TRIM)), SilentView())
    size = setup.generator.model.config.vocab_size
    assert size == len(setup.generator.tokenizer) < 100
    assert max(int(data.splits["train"].token_ids(row)[0].max()) for row in range(64)) < size
    assert [kind for kind, _ in setup.events if kind in ("trim", "fallback")] == ["trim"]


def test_a_model_that_had_to_be_loaded_whole_to_be_trimmed_is_an_event(word_recipe: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(word_recipe["model"]["path"], folder)
    torch.save(load_model(ModelRecipe(path=str(folder))).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    recipe = load_checked_recipe(word_recipe | {"model": {"path": str(folder)}}, TRIM)
    setup, _ = build_setup(resolve_recipe(recipe), SilentView())
    used = "the whole model was loaded and then trimmed"
    assert FallbackEvent("trimming", used, "its weights are not safetensors") in setup.events


def test_a_plan_is_for_one_of_the_processes_on_its_machine(
    word_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    predict_run = training_setup.predict_run

    def remember(*given: Any, **options: Any) -> RunPrediction:
        asked.update(options)
        return predict_run(*given, **options)

    monkeypatch.setattr(training_setup, "predict_run", remember)
    setup, _ = build_setup(resolve_recipe(load_checked_recipe(word_recipe)), SilentView(), 2**40, World(local_size=4))
    assert (asked["sharers"], asked["memory_limit_bytes"]) == (4, 2**40)
    assert ("memory-limit", "this process may use 1.0 TiB") in setup.events


@pytest.mark.parametrize("resume", [False, True])
def test_recipe_strategy_and_device_are_resolved_once(
    resume: bool, word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe: Any = word_recipe | {"train": {**word_recipe["train"], "steps": 2}}
    if resume:
        run = seqfit.train(recipe, out=tmp_path / "run")
        manifest = json.loads((run.path / "manifest.json").read_text())
        (run.path / "manifest.json").write_text(json.dumps(manifest | {"status": "interrupted"}))
        recipe = run.path
    calls: Counter[str] = Counter()
    for name in ("load_strategy", "choose_device"):
        monkeypatch.setattr(training_setup, name, _counted(getattr(training_setup, name), calls))
    monkeypatch.setattr(load_module, "read_yaml", _counted(load_module.read_yaml, calls))
    seqfit.train(recipe, out=None if resume else tmp_path / "run", resume=resume)
    assert calls == Counter(load_strategy=1, choose_device=1, read_yaml=1 if resume else 0)


def _counted(usual: Any, calls: Counter[str]) -> Any:
    def count(*given: Any, **settings: Any) -> Any:
        calls[usual.__name__] += 1
        return usual(*given, **settings)

    return count
