"""A short version of benchmarks/reliability: ten kills, six points without memory, some seconds of corrupted files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.reliability import kills
from benchmarks.reliability.fuzz import fuzz
from benchmarks.reliability.limits import starve_runs
from benchmarks.reliability.measure import build_recipe
from seqfit.rundir import files
from tests.switched_off import NO_PREDICTION

ROOT = Path(__file__).parents[2]

# What is killed and starved here are steps, not plans.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    """In a process of its own: it forks, which a process with other threads may not."""
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from benchmarks.reliability.kills import kill_runs\n"
        "from benchmarks.reliability.measure import build_recipe\n"
        "folder = Path(sys.argv[1])\n"
        "recipe = build_recipe(folder, dropout=0.1)\n"
        "recipe['train']['steps'] = 12\n"
        "reported = kill_runs(recipe, folder, 10)\n"
        "assert reported.kills >= 10 and not reported.different and not reported.unreadable, reported\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    own = NO_PREDICTION | {"SEQFIT_CACHE": str(tmp_path / "cache")}  # plans are no part of this, and take longer
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_run_that_finished_just_before_its_kill_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = iter([("whole", 0), ("run-1", signal.SIGKILL)])

    def fork(_train: object, kill_after: float | None = None) -> int:
        name, ended = next(forks)  # a third one would be the resume
        (tmp_path / name).mkdir()
        (tmp_path / name / files.MANIFEST).write_text('{"status": "finished"}')
        return ended

    monkeypatch.setattr(kills, "_fork", fork)
    monkeypatch.setattr(kills, "find_differences", lambda one, other: [])
    assert kills.kill_runs({}, tmp_path, 1) == kills.Kills(kills=1, runs=1, before_the_first_snapshot=1)


@pytest.mark.parametrize(("dtype", "points", "limit"), [(torch.float64, 6, 1e-9), (torch.float32, 4, 1e-4)])
def test_memory_that_runs_out_at_any_point_changes_no_update(
    tmp_path: Path, dtype: torch.dtype, points: int, limit: float
) -> None:
    recipe = build_recipe(tmp_path, dropout=0.0) | {"eval": {"every_steps": 6}}
    recipe["train"]["steps"] = 6  # memory runs out in the second
    outcomes = starve_runs(recipe, tmp_path, points, dtype)
    assert all(outcome.finished for outcome in outcomes)
    assert {"forward", "backward"} <= {outcome.phase for outcome in outcomes}
    differences = [
        outcome.weight_difference if dtype == torch.float64 else outcome.loss_difference for outcome in outcomes
    ]
    assert max(differences) <= limit


def test_corrupted_files_are_read_or_refused(tmp_path: Path) -> None:
    reported = fuzz(tmp_path, seconds=3)
    assert not reported.crashes, reported.crashes[0]
    assert reported.read
    assert reported.refused
