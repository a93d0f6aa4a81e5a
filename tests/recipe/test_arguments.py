from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seqfit.errors import RecipeError
from seqfit.recipe import arguments as module
from seqfit.recipe.arguments import RECIPES, ArgumentKind, check_kind, resolve

DATA: tuple[ArgumentKind, ...] = ("data", "folder", "hub")
ALL: tuple[ArgumentKind, ...] = ("recipe", "script", "data", "run", "comparison", "model", "folder", "known", "hub")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one of each kind; the model's, the run's and the library's names are all taken."""
    monkeypatch.chdir(tmp_path)
    for file in ("mine.yaml", "own.YML", "my.csv", "noending", "recipe.json", "my.py", "my.ipynb"):
        (tmp_path / file).write_text("")
    for folder, file in {"run": "recipe.yaml", "demo": "recipe.yaml", "rows": "train.csv"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text("")
    (tmp_path / "compared").mkdir()
    for file in ("comparison.yaml", "recipe.yaml"):
        (tmp_path / "compared" / file).write_text("")
    for folder, config in {"model": {"model_type": "t5"}, "other": {"columns": 3}}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
    return tmp_path


KINDS: dict[str, ArgumentKind] = {
    "demo": "recipe",
    "./demo": "run",
    "t5-gsm8k": "recipe",
    "mine.yaml": "recipe",
    "own.YML": "recipe",
    "my.py": "script",
    "my.ipynb": "script",
    "my.csv": "data",
    "noending": "data",
    "recipe.json": "data",
    "run": "run",
    "compared": "comparison",
    "model": "model",
    "other": "folder",
    "rows": "folder",
    "google/mt5-small": "known",
    "bert-base-uncased": "known",
    "somebody/mt5-small": "hub",
    "EleutherAI/gpt-neo-2.7B": "hub",
}


@pytest.mark.parametrize(("word", "kind"), KINDS.items())
def test_a_word_is_the_first_kind_that_it_can_be(word: str, kind: ArgumentKind) -> None:
    assert resolve(word, ALL).kind == kind


def test_only_kinds_that_are_taken_count() -> None:
    assert resolve("demo", ("run",)).kind == "run"
    assert resolve("compared", RECIPES).kind == "run"


KINDS = ["recipe", "script", "data", "comparison", "run", "model", "folder", "known", "hub"]


def test_every_kind_stands_in_the_docstring_in_the_order_of_precedence() -> None:
    listed = re.findall(r"^    ([a-z]+)   ", module.__doc__ or "", re.MULTILINE)
    assert list(dict.fromkeys(listed)) == KINDS


def test_the_document_has_the_same_list() -> None:
    text = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    section = text.partition("## What an argument can be")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!kind)([a-z]+) \|", section, re.MULTILINE)
    assert list(dict.fromkeys(rows)) == KINDS


@pytest.mark.parametrize("word", ["rows/tran", "rows/x.csv", "nowhere", "a/b/c", "new/data.csv"])
def test_a_path_with_a_mistake_is_no_name_on_the_hub(word: str) -> None:
    with pytest.raises(RecipeError, match="There is no recipe or data file"):
        resolve(word, (*RECIPES, *DATA))


def test_what_is_nearby_is_suggested() -> None:
    with pytest.raises(RecipeError, match=r"Did you mean 'my\.csv'\?"):
        resolve("ny.csv", (*RECIPES, *DATA))
    with pytest.raises(RecipeError, match=r"Did you mean 'rows/train\.csv'\?"):
        resolve("rows/trian.csv", DATA)


MISFITS: dict[tuple[str, str, tuple[ArgumentKind, ...]], str] = {
    ("my.csv", "validate", RECIPES): "seqfit new my.csv --out mine.yaml",
    ("my.csv", "evaluate", ("run",)): "seqfit evaluate RUN --data my.csv",
    ("my.csv", "predict", ("run", "model")): "seqfit predict RUN --file my.csv",
    ("my.csv", "report", ("run", "comparison", "folder")): "Give a run directory",
    ("mine.yaml", "evaluate", ("run",)): "seqfit train mine.yaml",
    ("t5-gsm8k", "track", ("run", "folder")): "seqfit train t5-gsm8k",
    ("model", "plan", RECIPES): "seqfit plan RECIPE model.path=model",
    ("google/mt5-small", "train", RECIPES): "seqfit train RECIPE model.name=google/mt5-small",
    ("my.py", "train", (*RECIPES, *DATA)): "seqfit convert my.py -o mine.yaml; seqfit train mine.yaml",
    ("compared", "evaluate", ("data",)): "seqfit compare compared --resume",
}


@pytest.mark.parametrize("case", MISFITS, ids=lambda case: f"{case[1]} {case[0]}")
def test_another_kind_is_answered_with_what_to_type_instead(case: tuple[str, str, tuple[ArgumentKind, ...]]) -> None:
    word, command, takes = case
    with pytest.raises(RecipeError) as refused:
        resolve(word, takes, command)
    message = str(refused.value)
    assert message.startswith(f"'{word}' is ")
    assert f"seqfit {command} takes " in message
    assert MISFITS[case] in message


def test_a_check_lets_pass_what_is_not_there() -> None:
    check_kind("nowhere", ("run",), "evaluate")
    check_kind("runs/not-yet", ("run",), "report")
    with pytest.raises(RecipeError, match=r"'mine\.yaml' is a recipe"):
        check_kind("mine.yaml", ("run",), "evaluate")
