"""The README names commands that exist, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from seqfit.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")


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


def test_the_readme_goes_from_training_to_an_answer() -> None:
    """tests/journeys types all of them and looks at what they print."""
    names = {shlex.split(command)[1] for command in commands() if command.startswith("seqfit ")}
    assert {"train", "evaluate", "predict", "ls", "cp", "validate", "doctor"} <= names
    assert names <= set(COMMANDS)


def test_the_readmes_links_and_pictures_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
