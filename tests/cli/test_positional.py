"""Whatever stands where a recipe or a run belongs, every command says what it is and what to type instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.cli.main import COMMANDS, main

RECIPES = ("validate", "show", "profile", "scale", "compare", "prefetch", "submit")
DATA = ("data", "train", "plan")
RUNS = ("evaluate", "predict", "report", "status", "logs", "cancel", "serve")
# track takes runs, and needs --to
NO_SUCH_WORD = {
    "new",
    "audit",
    "export",
    "study",
    "ls",
    "cp",
    "schema",
    "doctor",
    "trim",
    "convert",
    "track",
    "calibration",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.csv").write_text("question,answer\n" + "\n".join(f"why {n}?,so {n}" for n in range(30)))
    (tmp_path / "my.py").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "t5"}))


def test_every_command_is_listed() -> None:
    assert {*RECIPES, *DATA, *RUNS} | NO_SUCH_WORD == set(COMMANDS)


def refuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    return error


@pytest.mark.parametrize("command", RECIPES)
def test_a_data_file_is_no_recipe(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse([command, "my.csv"], capsys)
    assert f"'my.csv' is a data file. seqfit {command} takes" in error
    assert "seqfit new my.csv --out mine.yaml" in error


@pytest.mark.parametrize("command", [*RECIPES, "data", "train"])
def test_a_models_folder_is_no_recipe(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"seqfit {command} RECIPE model.path=model" in refuse([command, "model"], capsys)


@pytest.mark.parametrize("command", [*RECIPES, "data", "train"])
def test_a_script_is_converted_first(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse([command, "my.py"], capsys)
    assert "'my.py' is a script" in error
    assert f"seqfit convert my.py -o mine.yaml; seqfit {command} mine.yaml" in error


def test_a_plan_takes_a_script_with_a_trainer(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.py").write_text("print('no training here')\n")
    assert "'my.py' has no Trainer" in refuse(["plan", "my.py"], capsys)


@pytest.mark.parametrize("command", RUNS)
def test_a_script_is_no_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'my.py' is a script" in refuse([command, "my.py"], capsys)


@pytest.mark.parametrize("command", [*RECIPES, "train"])
def test_a_models_name_is_no_recipe(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse([command, "t5-base"], capsys)
    assert "'t5-base' is a model. " in error
    assert f"seqfit {command} RECIPE model.name=t5-base" in error


@pytest.mark.parametrize("command", RUNS)
def test_a_recipe_is_no_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "seqfit train demo" in refuse([command, "demo"], capsys)


def test_a_data_file_in_the_place_of_a_recipe_is_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(["train", "my.csv", "--task", "qa", "--model", "./nowhere"], capsys)
    assert "nowhere" in error  # it came as far as the model
    for command in ("train", "plan"):  # without a task that is certain nothing is chosen
        assert "The task can't be guessed from them. Add --task" in refuse([command, "my.csv"], capsys)


def test_track_takes_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'my.csv' is a data file" in refuse(["track", "my.csv", "--to", "tensorboard"], capsys)
