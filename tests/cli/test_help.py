"""`--help` answers at once and for every command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from seqfit.cli.main import COMMANDS, main

MOST_MODULES = 60  # 36 on Python 3.11; typer alone would bring hundreds
PROGRAM = """
import json, sys
before = set(sys.modules)
from seqfit.cli.main import main
code = main(["--help"])
print(json.dumps([code, sorted(set(sys.modules) - before)]))
"""


def test_help_imports_little_and_nothing_that_was_installed() -> None:
    """So it answers at once; benchmarks/startup has the time."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"seqfit"}
    assert len(modules) <= MOST_MODULES


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text and help_line in text for name, help_line in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: seqfit {name} ")
    assert "\n\n  " in text  # a sentence on what it does
