"""Several processes make the update of one. What is compared, and how closely, is in many_ranks.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_leave_the_weights_of_one(
    size: int, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    models = [str(tiny_model(name)) for name in ("t5", "mt5", "umt5", "bert")]
    command = [sys.executable, "-m", "tests.agreement.many_ranks", str(tmp_path / "meeting")]
    settings: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[2]}
    ranks = [subprocess.Popen([*command, str(rank), str(size), *models], **settings) for rank in range(size)]
    try:
        errors = [process.communicate(timeout=400)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()  # does nothing to one that has ended
    assert [process.returncode for process in ranks] == [0] * size, errors
