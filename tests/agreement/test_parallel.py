"""Several processes make the update of one. What is compared, and how closely, is in many_ranks.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agreement.many_ranks import run_rank
from tests.processes import run_forks


@pytest.mark.parametrize(("size", "names"), [(2, ("t5", "mt5", "umt5", "bert")), (4, ("t5", "bert"))])
def test_several_processes_leave_the_weights_of_one(
    size: int, names: tuple[str, ...], tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Untied heads are split over two; that four stages of them are as one is in test_pipeline.py."""
    models = [str(tiny_model(name)) for name in names]
    calls = [(str(tmp_path / "meeting"), rank, size, models) for rank in range(size)]
    ended = run_forks(run_rank, calls, [os.environ] * size, tmp_path, timeout_seconds=400)
    assert [code for code, _ in ended] == [0] * size, ended
