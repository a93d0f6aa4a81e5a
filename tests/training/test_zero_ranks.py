"""Whole runs by DeepSpeed's ZeRO: the same as a single process, stopped and resumed bit-exactly."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import seqfit
from seqfit.rundir.reader import Run
from tests.training.test_ranks import assert_alike, start_ranks, weights_of

Recipe = dict[str, Any]
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("deepspeed") is None,
        reason="DeepSpeed is not installed; pip install 'seqfit[deepspeed]' has it",
    ),
    pytest.mark.slow,
    pytest.mark.usefixtures("no_prediction", "no_telemetry"),  # as in test_ranks.py
]


@pytest.fixture
def zero_recipe(word_recipe: Recipe) -> Recipe:
    word_recipe["model"]["dropout"] = 0.0
    word_recipe["train"] |= {"steps": 10, "log_every": 1, "snapshot": {"every_steps": 2}}
    word_recipe["eval"] = {"every_steps": 5}
    word_recipe["strategy"] = {"micro_batch_tokens": 40, "parallel": "fsdp"}
    return word_recipe


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_deepspeed_trains_like_a_single_process_and_resumes_bit_exactly(
    zero_recipe: Recipe, tmp_path: Path, sharding: str
) -> None:
    zero_recipe["strategy"]["sharding"] = sharding
    single = seqfit.train(zero_recipe, out=tmp_path / "single")
    ended = start_ranks(zero_recipe, tmp_path / "two", "none")
    assert [code for code, _ in ended] == [0, 0], ended
    two = Run(tmp_path / "two")
    assert_alike(single, two)
    assert any(event["message"] == f"{sharding} over 2 processes" for event in two.events())
    stopped = start_ranks(zero_recipe, tmp_path / "parts", "signal")
    assert [code for code, _ in stopped] == [75, 75], stopped
    resumed = start_ranks(zero_recipe, tmp_path / "parts", "none", "--resume")
    assert [code for code, _ in resumed] == [0, 0], resumed
    parts = Run(tmp_path / "parts")
    assert [record["loss"] for record in parts.steps()] == [record["loss"] for record in two.steps()]
    left, right = weights_of(two), weights_of(parts)
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("after", [1, 3])
def test_another_number_of_processes_is_refused(zero_recipe: Recipe, tmp_path: Path, after: int) -> None:
    zero_recipe["strategy"]["sharding"] = "zero3"
    assert [code for code, _ in start_ranks(zero_recipe, tmp_path / "run", "signal")] == [75, 75]
    refused = start_ranks(zero_recipe, tmp_path / "run", "none", "--resume", size=after)
    assert [code for code, _ in refused] == [2] * after, refused
    assert all(f"by 2 of ZeRO's processes, and {after} would read it" in text for _, text in refused)
    assert all("Resume with 2" in text for _, text in refused)
