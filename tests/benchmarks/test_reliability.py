"""A short version of benchmarks/reliability: ten kills, six points without memory, some seconds of spoilt files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.reliability.fuzz import fuzz
from benchmarks.reliability.limits import starve_runs
from benchmarks.reliability.measure import build_recipe

ROOT = Path(__file__).parents[2]


def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    """In a process of its own: it forks, which a process with other threads may not."""
    script = (
        "import json, os, sys\nfrom dataclasses import asdict\nfrom pathlib import Path\n"
        "os.environ |= {'SEQFIT_FORECAST': 'off', 'SEQFIT_CACHE': sys.argv[1] + '/cache'}\n"
        "from benchmarks.reliability.kills import kill_runs\n"
        "from benchmarks.reliability.measure import build_recipe\n"
        "folder = Path(sys.argv[1])\n"
        "told = kill_runs(build_recipe(folder, dropout=0.1), folder, 10)\n"
        "assert told.kills >= 10 and not told.different and not told.unreadable, told\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_memory_that_runs_out_at_any_point_changes_no_update(tmp_path: Path, dtype: torch.dtype, limit: float) -> None:
    outcomes = starve_runs(build_recipe(tmp_path, dropout=0.0), tmp_path, 6, dtype)
    assert all(outcome.finished for outcome in outcomes)
    assert {"forward", "backward"} <= {outcome.phase for outcome in outcomes}
    differences = [
        outcome.weight_difference if dtype == torch.float64 else outcome.loss_difference for outcome in outcomes
    ]
    assert max(differences) <= limit


def test_spoilt_files_are_read_or_refused(tmp_path: Path) -> None:
    told = fuzz(tmp_path, seconds=4)
    assert not told.crashes, told.crashes[0]
    assert told.read
    assert told.refused
