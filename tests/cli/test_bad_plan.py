"""What a plan or a conversion can't be made of is answered in three parts, with exit code 2 and no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main

PLANS: dict[str, tuple[list[str], str]] = {
    "unknown model": (["google/flan-t5-lage", "--gpu", "t4"], "Did you mean 'google/flan-t5-large'?"),
    "unknown GPU": (["t5-base", "--gpu", "rtx3091"], "Did you mean "),
    "zero GPUs": (["t5-base", "--gpu", "t4", "--gpus", "0"], "at least one GPU"),
    "none of a GPU": (["t5-base", "--gpu", "0xt4"], "at least one GPU"),
    "a length beyond the positions": (
        ["bert-base-uncased", "--gpu", "t4", "--source-tokens", "5000"],
        "has positions for 512 tokens",
    ),
    "a page that can't be written": (["t5-base", "--gpu", "t4", "--html", "/nowhere/plan.html"], "not a folder"),
    "a change that is none": (["t5-base", "--gpu", "t4", "--what-if", "nonsense"], "field=value"),
    "a change to nothing": (["t5-base", "--gpu", "t4", "--what-if", "strategy.recompute=banana"], "banana"),
    "no length": (["t5-base", "--gpu", "t4", "--source-tokens", "0"], "at least one token"),
}
FILES: dict[str, tuple[str | bytes | None, str]] = {
    "plain.py": ("print('hello')\n", "has no Trainer"),
    "empty.py": ("", "is empty"),
    "syntax.py": ("from transformers import Trainer\nx = (1,\ny = 2\n", "line 2: "),
    "training_args.bin": (b"\x80\x04", "is a pickle"),
    "plain.ipynb": (json.dumps({"cells": [{"cell_type": "code", "source": ["print(1)"]}]}), "has no Trainer"),
    "broken.ipynb": ("{", "is not a notebook"),
    "empty.sh": (" \n", "is empty"),
    "nowhere.py": (None, "check the path"),
}


def check_error(arguments: list[str], expected: str, printed: Callable[[], str]) -> None:
    assert main(arguments) == 2
    error = printed()
    assert error.startswith("error: ")
    assert expected.lower() in error.lower()
    assert "Traceback" not in error


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_says_what_is_wrong(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, expected = PLANS[case]
    check_error(["plan", *arguments], expected, lambda: capfd.readouterr().err)


@pytest.mark.parametrize("command", ["convert", "plan"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_trainer_script_is_refused(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    content, expected = FILES[name]
    if content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    check_error([command, name], expected, lambda: capfd.readouterr().err)
    assert [file.name for file in tmp_path.iterdir()] == ([] if content is None else [name])
