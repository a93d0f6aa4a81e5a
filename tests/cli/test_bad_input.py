"""What a user gets wrong is answered in three parts, with exit code 2 and no traceback."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main

GOOD = {"question": "w3 w4", "answer": "w4"}


def write_rows(tmp_path: Path, empty_answers: int = 0) -> None:
    rows = [GOOD | {"question": f"w3 w{n}"} | ({"answer": ""} if n < 4 + empty_answers else {}) for n in range(4, 40)]
    spoil_rows(tmp_path, "\n".join(map(json.dumps, rows)))


@pytest.fixture
def arguments(tmp_path: Path, tiny_model: Callable[[str], Path]) -> list[str]:
    """A command that would work: each test spoils one thing."""
    write_rows(tmp_path)
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": str(tmp_path / "rows.jsonl")},
        "train": {"steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    return ["train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")]


def test_the_command_works_when_nothing_is_corrupted(arguments: list[str]) -> None:
    assert main(arguments) == 0


def test_a_row_that_cannot_be_used_is_left_out_and_stands_on_the_page(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path, empty_answers=1)
    assert main([*arguments, "data.holdout.test=0"]) == 0
    assert "rows left out" in capfd.readouterr().out
    (bad,) = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))["data"]["left_out"]
    assert (bad["cause"], bad["rows"], bad["examples"][0][0]) == ("empty target", 1, 1)
    assert "Rows left out" in (tmp_path / "run" / "summary.html").read_text("utf-8")


def spoil_rows(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)


SPOILED: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "missing file": (lambda tmp: None, ["data.path=rows.json"], "rows.json"),
    "unknown column": (lambda tmp: None, ["task.source={questoin}"], "Did you mean 'question'?"),
    "empty data set": (lambda tmp: spoil_rows(tmp, ""), [], "no rows"),
    "wrong JSON": (lambda tmp: spoil_rows(tmp, '{"question": "a", "answer"}\n'), [], "line 1, column"),
    "empty targets": (lambda tmp: write_rows(tmp, empty_answers=9), [], "task.missing_target"),
    "label outside the list": (
        lambda tmp: None,
        ["task.name=classify", "task.labels=[w9, w8]"],
        "task.labels has w9, w8",
    ),
    "tokenizer that fails to load": (
        lambda tmp: (tmp / "tok").mkdir() or (tmp / "tok" / "tokenizer.json").write_text("{}"),
        ["model.tokenizer={tmp}/tok"],
        "tokenizer",
    ),
    "no such model folder": (lambda tmp: None, ["model.path=./nowhere"], "no such folder"),
    "misspelt field": (lambda tmp: None, ["train.learning_rat=1"], "Did you mean"),
    "a run directory that exists": (
        lambda tmp: (tmp / "run").mkdir() or (tmp / "run" / "x").touch(),
        [],
        "already exists",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_mistake_is_explained(
    case: str, arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spoil, overrides, expected = SPOILED[case]
    spoil(tmp_path)
    code = main([*arguments, *(override.replace("{tmp}", str(tmp_path)) for override in overrides)])
    error = capfd.readouterr().err
    assert code == 2
    assert error.startswith("error: ")
    assert expected in error
    assert "Traceback" not in error


def test_no_network_says_how_to_do_without(
    arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    assert main([*arguments, "~model.path", "model.name=google/mt5-small"]) == 2
    error = capfd.readouterr().err
    assert "google/mt5-small" in error
    assert "model.path" in error or "model.tokenizer" in error
    assert main([*arguments, "~data.path", "data.hub=openai/gsm8k"]) == 2
    error = capfd.readouterr().err
    assert "openai/gsm8k" in error
    assert "data.path" in error
