"""A task that a tiny model is trained for within seconds: generate the second word of the source."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.recipe.load import load_recipe
from seqfit.rundir.reader import Run
from seqfit.training.setup import build_setup, resolve_recipe
from seqfit.training.view import SilentView

Recipe = dict[str, Any]


@pytest.fixture(scope="session")
def word_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("word-rows")
    draw = random.Random(0)
    for split, rows in (("train", 64), ("validation", 12), ("test", 8)):
        lines = []
        for _ in range(rows):
            words = [f"w{draw.randrange(3, 12)}" for _ in range(draw.randrange(2, 9))]
            lines.append(json.dumps({"text": " ".join(words), "answer": words[1]}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def word_recipe(word_rows: Path, tiny_model: Callable[[str], Path]) -> Recipe:
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(word_rows)},
        "train": {"steps": 12, "batch_examples": 16, "learning_rate": 1e-2, "log_every": 4},
        "eval": {"every_steps": 6},
    }


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], Run]:
    """The run of a recipe that nothing happens to, for others to be compared with; each is made once."""
    made: dict[str, Run] = {}

    def train(recipe: Recipe) -> Run:
        key = json.dumps(recipe, sort_keys=True)
        if key not in made:
            made[key] = seqfit.train(recipe, out=tmp_path_factory.mktemp("undisturbed") / "run")
        return made[key]

    return train


@pytest.fixture
def build_short_job(word_recipe: Recipe) -> Callable[..., Any]:
    """Overrides -> the job that `seqfit train` would run."""

    def build(*overrides: str) -> Any:
        recipe = word_recipe | {"train": {"steps": 12, "batch_examples": 8}, "strategy": {"name": "default"}}
        return build_setup(resolve_recipe(load_recipe(recipe, overrides)), SilentView())[0]

    return build
