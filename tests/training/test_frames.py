"""From the loop to `loss.backward()` a reader passes at most five functions of ours, whatever the parallel strategy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import seqfit
from tests.training.frames import watch_backwards
from tests.training.test_ranks import start_ranks

pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")  # which make no backward of the loop's
MOST = 5


@pytest.fixture
def recipe(word_rows: Path, tiny_model: Callable[[str], Path]) -> dict[str, Any]:
    return {
        "model": {"path": str(tiny_model("t5")), "dropout": 0.0},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(word_rows)},
        "train": {"steps": 2, "batch_examples": 16},
        "eval": {"every_steps": 9, "limit": 2},
        "strategy": {"micro_batch_tokens": 40, "telemetry_hz": 0},
    }


def test_a_single_process(recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (torch.Tensor, torch.autograd):
        monkeypatch.setattr(owner, "backward", owner.backward)  # put back at the end
    seen = watch_backwards()
    seqfit.train(recipe, out=tmp_path / "run", progress=False)
    assert seen
    assert max(map(len, seen)) <= MOST, seen[-1]
    assert seen[0][:2] == ["run_training", "make_step"]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "pipeline", "zero2", "zero3"])
def test_two_processes(parallel: str, recipe: dict[str, Any], tmp_path: Path) -> None:
    if parallel.startswith("zero"):
        pytest.importorskip("deepspeed", reason="DeepSpeed is not installed; pip install 'seqfit[deepspeed]' has it")
        recipe["strategy"]["sharding"] = parallel
    recipe["strategy"]["parallel"] = "fsdp" if parallel.startswith("zero") else parallel
    ended = start_ranks(recipe, tmp_path / "run", "frames", size=2)
    assert [code for code, _ in ended] == [0, 0], ended
