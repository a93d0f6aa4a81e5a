"""What tests of `seqfit/launch` and its commands share: a Slurm that answers from files, a recipe, a submitted run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seqfit.launch.slurm import add_submission
from seqfit.rundir import files

Recipe = dict[str, Any]

SBATCH = """#!/bin/sh
if [ -f {folder}/refusal ]; then cat {folder}/refusal >&2; exit 1; fi
echo "$@" >> {folder}/sbatch.txt
echo 17
"""
SCONTROL = """#!/bin/sh
if [ ! -f {folder}/job ]; then echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; fi
cat {folder}/job
"""
SCANCEL = """#!/bin/sh
echo "$@" >> {folder}/scancel.txt
"""


@dataclass(frozen=True)
class FakeSlurm:
    """Three commands on the PATH: what they are asked is kept, and they say what a test sets."""

    folder: Path

    def says(self, state: str, **fields: Any) -> None:
        """From now on scontrol knows a job in this state."""
        words = {"JobId": 17, "JobState": state, "Reason": "None", "Restarts": 0, "RunTime": "00:01:10"} | fields
        words |= {"TimeLimit": "04:00:00"}
        (self.folder / "job").write_text(" ".join(f"{name}={value}" for name, value in words.items()) + "\n")

    def refuses(self, why: str) -> None:
        """From now on sbatch fails."""
        (self.folder / "refusal").write_text(f"sbatch: error: {why}\n")

    def asked(self, command: str) -> list[str]:
        """What a command was called with, one line a call."""
        path = self.folder / f"{command}.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "slurm-commands"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "scontrol": SCONTROL, "scancel": SCANCEL}.items():
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeSlurm(folder)


@pytest.fixture
def without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of one's own, and no settings of the user's."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SEQFIT_PROFILE", raising=False)
    return folder


@pytest.fixture
def recipe_file(workplace: Path) -> Path:
    """A recipe that is right as far as a recipe alone can be; its model is never loaded."""
    (workplace / "rows.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    recipe: Recipe = {
        "model": {"name": "t5-small"},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": "rows.jsonl"},
        "train": {"steps": 5},
    }
    file = workplace / "mine.yaml"
    file.write_text(json.dumps(recipe))
    return file


@pytest.fixture
def submitted_run(workplace: Path) -> Path:
    """A directory that has been given to Slurm as job 17, and in which nothing has happened yet."""
    folder = Path("runs/demo")
    folder.mkdir(parents=True)
    add_submission(folder, "17", folder / files.slurm_log("17"))
    return folder


def write_progress(run: Path, status: str, steps: int, **more: Any) -> None:
    """As if so many steps of 50 had been made."""
    (run / files.MANIFEST).write_text(json.dumps({"status": status, "total_steps": 50} | more))
    lines = [json.dumps({"step": step, "loss": 1 / step}) for step in range(1, steps + 1)]
    (run / files.STEPS).write_text("".join(f"{line}\n" for line in lines))
