from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from seqfit.errors import SeqfitError
from seqfit.inspection.data import find_given, read_given, replace_data
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe

ROWS = [{"question": f"where is {n}?", "answer": f"at {n}"} for n in range(20)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path


def test_a_recipe_stays_what_it_is() -> None:
    given = read_given("demo", ["train.steps=3"])
    assert (given.recipe, given.overrides, given.name, given.data, given.notes) == (
        "demo",
        ("train.steps=3",),
        "demo",
        None,
        (),
    )
    assert given.format_command("train") == "seqfit train demo train.steps=3"
    assert read_given(given) is given


def test_a_mapping_and_a_loaded_recipe_are_recipes() -> None:
    loaded = load_recipe("demo")
    assert read_given(loaded).recipe is loaded
    values: dict[str, Any] = {"extends": "demo"}
    assert read_given(values).recipe is values


@pytest.mark.parametrize("is_positional", [True, False])
def test_a_data_file_is_data_with_and_without_the_option(is_positional: bool) -> None:
    places = {"recipe": "my.jsonl"} if is_positional else {"recipe": None, "data": "my.jsonl"}
    given = read_given(**places, task="qa", model="google/mt5-small", overrides=["train.steps=3"])
    recipe = load_recipe(given.recipe, given.overrides)
    assert (recipe.task.target, recipe.train.steps, recipe.model.name) == ("{answer}", 3, "google/mt5-small")
    assert "qa: 'question: {question}' -> '{answer}'" in given.notes
    assert (
        given.format_command("train") == "seqfit train --data my.jsonl --task qa --model google/mt5-small train.steps=3"
    )
    assert given.name == "my"


def test_the_command_that_is_shown_can_be_pasted() -> None:
    given = find_given("my.jsonl", ["task.source={question} ?"], command="data")
    assert (
        given.format_command("train")
        == "seqfit train --data my.jsonl --model google/mt5-small 'task.source={question} ?'"
    )


def test_data_in_memory_lies_in_the_cache_under_its_own_name() -> None:
    given = read_given(pd.DataFrame(ROWS), task="qa", model="google/mt5-small")
    recipe = load_recipe(given.recipe, given.overrides)
    assert given.name == recipe.sources[0].title == "DataFrame"
    assert Path(recipe.sources[0].path or "").is_file()
    assert read_given(None, data=pd.DataFrame(ROWS), task="qa", model="google/mt5-small") == given


def test_a_model_may_come_from_an_override(tiny_model: Callable[[str], Path]) -> None:
    given = read_given("my.jsonl", [f"model.path={tiny_model('t5')}"], task="qa")
    assert given.model == str(tiny_model("t5"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"recipe": None}, "no recipe is given"),
        ({"recipe": "demo", "task": "qa"}, "a recipe is given together with --task or --model"),
        ({"recipe": "demo", "data": "my.jsonl"}, r"a recipe \(demo\) and data are given"),
        ({"recipe": "my.jsonl", "gpus": ["rtx1"]}, "'rtx1' is not in the table of GPUs"),
        ({"recipe": "google/mt5-small"}, "model.name=google/mt5-small"),
        ({"recipe": 7}, "data is a builtins.int"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SeqfitError, match=said):
        read_given(**arguments)


class TestOtherData:
    """What `evaluate(run, data=...)` scores: all rows, and not a tenth of them."""

    @pytest.fixture
    def recipe(self) -> Recipe:
        values: dict[str, Any] = {
            "model": {"name": "x"},
            "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
            "data": {"path": "my.jsonl", "group": "question", "limit": {"test": 1}},
        }
        return load_recipe(values)

    def rows_of(self, recipe: Recipe, data: Any, split: str) -> int:
        from seqfit.data import SourceSplits

        overrides, _ = replace_data(recipe, data, split)
        (source,) = load_recipe(recipe, overrides).sources
        found = SourceSplits(source, 0, lambda row: row["question"])
        assert split in found.names
        return sum(1 for _ in found.select(split).rows())

    @pytest.mark.parametrize("split", ["train", "validation", "test"])
    def test_all_rows_of_a_frame_and_of_a_file_are_the_split(self, recipe: Recipe, split: str, place: Path) -> None:
        assert self.rows_of(recipe, pd.DataFrame(ROWS), split) == 20
        assert self.rows_of(recipe, str(place / "my.jsonl"), split) == 20

    def test_data_with_splits_keeps_them(self, recipe: Recipe) -> None:
        assert self.rows_of(recipe, {"train": ROWS, "test": ROWS[:3]}, "test") == 3

    def test_the_result_is_called_by_the_data(self, recipe: Recipe) -> None:
        assert replace_data(recipe, ROWS, "test")[1] == "rows"
        assert replace_data(recipe, "my.jsonl", "test")[1] == "my.jsonl"

    def test_what_rows_mean_is_kept(self, recipe: Recipe) -> None:
        (override,), _ = replace_data(recipe, ROWS, "test")
        assert load_recipe(recipe, [override]).sources[0].group == "question"
