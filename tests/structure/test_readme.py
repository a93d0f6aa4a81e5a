"""The README's commands run, in its order, in an empty directory, and its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
ELSEWHERE = ("pip install -c constraints.txt .",)  # the environment of this test is already installed


def commands() -> list[str]:
    """The lines after '$ ' in console blocks, with their continuations."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL):
        lines = iter(block.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines).strip()
                found.append(command)
    return found


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every command of the README -> what it printed; each must end well."""
    folder = tmp_path_factory.mktemp("readme")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "SEQFIT_CACHE": str(folder / "cache"), "COLUMNS": "120"}
    printed = {}
    for command in commands():
        if command in ELSEWHERE:
            continue
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        printed[command] = done.stdout
    printed["scores"] = (folder / "runs" / "demo" / "evaluation-test.json").read_text()
    printed["scores before"] = (folder / "runs" / "demo" / "evaluation-test-before.json").read_text()
    return printed


def test_the_demo_reads_what_it_has_never_seen(outputs: dict[str, str]) -> None:
    after, before = json.loads(outputs["scores"]), json.loads(outputs["scores before"])
    assert after["metrics"]["em"] >= 80
    assert before["metrics"]["em"] <= 20
    assert after["rows"] >= 200


def test_the_question_is_answered_as_the_readme_says(outputs: dict[str, str]) -> None:
    command = next(command for command in commands() if command.startswith("seqfit predict"))
    shown = TEXT.split(command.split("\\")[0].split(" context=")[0], 1)[1].split("```", 1)[0]
    assert outputs[command].strip()
    assert outputs[command].strip() in shown


def test_every_command_of_the_readme_is_one_of_seqfits(outputs: dict[str, str]) -> None:
    names = {shlex.split(command)[1] for command in outputs if command.startswith("seqfit ")}
    assert {"train", "evaluate", "predict", "ls", "cp", "validate", "doctor"} <= names


def test_the_readmes_links_and_pictures_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
