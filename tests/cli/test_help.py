"""`--help` answers at once and for every command."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

from seqfit.cli.main import COMMANDS, main

HELP_SECONDS = 0.3


def run_seconds(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "seqfit", *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def test_help_answers_within_three_tenths_of_a_second() -> None:
    assert statistics.median(run_seconds("--help") for _ in range(5)) < HELP_SECONDS


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
