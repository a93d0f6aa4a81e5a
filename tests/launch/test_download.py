from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.cache import cache_root
from seqfit.data import DataTable, file_tables
from seqfit.errors import ModelError, RecipeError
from seqfit.launch.download import download
from tests.launch.hub import serve_model
from tests.switched_off import NO_PREDICTION

Recipe = dict[str, Any]


@pytest.fixture
def recipe(workplace: Path, tiny_model: Callable[[str], Path]) -> Recipe:
    rows = [{"question": f"w3 w{n}", "answer": f"w{n}"} for n in range(4, 40)]
    (workplace / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": str(workplace / "rows.jsonl")},
        "train": {"steps": 2},
    }


def test_a_local_model_is_checked_and_the_data_are_tokenized_once(recipe: Recipe) -> None:
    said = list(download(recipe))
    assert [line.split(":")[0] for line in said] == ["model", "data", "tokenized"]
    assert said[-1] == "tokenized: train 28, validation 4, test 4 rows"
    entries = set((cache_root() / "tokenized").iterdir())
    list(download(recipe))
    assert set((cache_root() / "tokenized").iterdir()) == entries


def test_without_tokenizing_only_what_is_far_away_is_fetched(recipe: Recipe) -> None:
    before = set((cache_root() / "tokenized").glob("*"))
    assert [line.split(":")[0] for line in download(recipe, tokenize=False)] == ["model", "data"]
    assert set((cache_root() / "tokenized").glob("*")) == before


def test_a_data_set_of_the_hub_is_downloaded(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def load(name: str, config: str | None) -> dict[str, DataTable]:
        asked.append((name, config))
        return {split: DataTable(split, (), lambda: iter([])) for split in ("train", "test")}

    monkeypatch.setattr(file_tables, "load_hub_splits", load)
    recipe["data"] = {"hub": "knkarthick/dialogsum"}
    assert list(download(recipe, tokenize=False))[-1] == "data: knkarthick/dialogsum, from the Hub (train, test)"
    assert asked == [("knkarthick/dialogsum", None)]


def test_a_mistake_in_the_recipe_comes_before_any_download(recipe: Recipe) -> None:
    with pytest.raises(RecipeError, match="stepps"):
        list(download(recipe, ["train.stepps=3"]))


def test_a_folder_without_weights_is_an_error(recipe: Recipe, workplace: Path) -> None:
    shutil.copytree(recipe["model"]["path"], workplace / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    recipe["model"]["path"] = str(workplace / "bare")
    with pytest.raises(ModelError, match=r"has no weights\. They are files such as \*\.safetensors .*weights=random"):
        list(download(recipe))
    assert list(download(recipe, ["model.weights=random"]))


def test_a_model_that_is_not_on_the_hub_is_an_error_in_three_parts(recipe: Recipe) -> None:
    recipe["model"] = {"name": "nobody/nothing"}
    absent = r"model.name is 'nobody/nothing', (and its config does not load|which was not downloaded before).* network"
    with pytest.raises(ModelError, match=absent):
        list(download(recipe))
    recipe["model"] = {"path": "nowhere"}
    with pytest.raises(ModelError, match=r"model.path is 'nowhere', and there is no such folder"):
        list(download(recipe))


def test_a_tokenizer_that_is_not_on_the_hub_is_an_error_in_three_parts(recipe: Recipe) -> None:
    recipe["model"]["tokenizer"] = "nobody/nothing"
    with pytest.raises(
        ModelError, match=r"the tokenizer 'nobody/nothing' can't be downloaded .*needs the network.*login"
    ):
        list(download(recipe))


@pytest.mark.journey
def test_what_was_fetched_trains_on_a_node_without_a_network(
    recipe: Recipe, workplace: Path, tiny_model: Callable[[str], Path]
) -> None:
    """Against a Hub on this machine; the second process can't reach it any more, and would not ask."""
    published = workplace / "published"
    shutil.copytree(tiny_model("t5"), published)
    (published / "tf_model.h5").write_bytes(b"not wanted")
    recipe["model"] = {"name": "ada/tiny"}
    (workplace / "mine.yaml").write_text(json.dumps(recipe))
    environment = os.environ | {"HF_HOME": str(workplace / "hub"), "SEQFIT_CACHE": str(workplace / "cache")}
    with serve_model("ada/tiny", published) as (address, asked):
        said = _seqfit(
            "prefetch", "mine.yaml", environment=environment | {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"}
        )
    assert said.startswith("model: ada/tiny, ")
    assert "model.safetensors" in asked
    assert "tf_model.h5" not in asked
    environment |= {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"} | NO_PREDICTION  # which fetches nothing
    assert "run: out" in _seqfit("train", "mine.yaml", "--out", "out", environment=environment)


def _seqfit(*words: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "seqfit", *words], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
