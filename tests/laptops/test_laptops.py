"""The demo on macOS and Windows, as far as Linux can play them: see sitecustomize.py for what is taken away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seqfit.rundir.reader import Run

HERE = Path(__file__).parent
SHORT = "train.steps=3 eval.limit=4 train.snapshot.every_steps=2"


def play(laptop: str, folder: Path, *lines: str, **variables: str) -> str:
    """What the commands print; prediction and telemetry are on, as a user has them."""
    done = subprocess.run(
        [sys.executable, str(HERE / "journey.py"), *lines],
        cwd=folder,
        env=os.environ | {"SEQFIT_TEST_LAPTOP": laptop, "PYTHONPATH": str(HERE)} | variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.journey
def test_without_windows_missing_modules_signals_and_letters_the_demo_trains_and_is_scored(tmp_path: Path) -> None:
    printed = play(
        "windows",
        tmp_path,
        f"train demo {SHORT} --out run",
        "evaluate run --limit 4",
        "predict run 'question=Where is it?' 'context=It is in Oslo.'",
        "report run",
        PYTHONIOENCODING="cp1252:strict",  # what a pipe takes there
    )
    assert printed.count("done: ") == 4
    run = Run(tmp_path / "run")
    assert run.status == "finished"
    assert (run.path / "summary.html").is_file()
    assert sorted(folder.name for folder in (run.path / "snapshots").iterdir())
    assert run.telemetry()


@pytest.mark.journey
def test_without_what_macos_lacks_the_demo_trains(tmp_path: Path) -> None:
    assert "done: train" in play("macos", tmp_path, f"train demo {SHORT} --out run")
    assert Run(tmp_path / "run").status == "finished"


MODULES = ["fcntl", "resource", "termios", "pwd", "grp", "msvcrt"]
FUNCTIONS = ["os.fork", "os.killpg", "os.setsid", "os.sched_getaffinity", "os.geteuid", "os.getloadavg", "os.statvfs"]


def find_files(pattern: str) -> set[str]:
    package = Path(HERE).parents[1] / "seqfit"
    files = [file for file in package.rglob("*.py") if re.search(pattern, file.read_text("utf-8"), re.MULTILINE)]
    return {str(file.relative_to(package)) for file in files}


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_what_windows_lacks(module: str) -> None:
    """system.py finds them by importlib."""
    assert find_files(rf"^\s*(import|from) {module}\b") == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_windows_or_macos_lack_is_asked_for_where_it_is_called(function: str) -> None:
    module, name = function.split(".")
    calls = find_files(rf"\b{re.escape(function)}\(")
    assert calls <= find_files(rf'hasattr\({module}, "{name}"\)')
