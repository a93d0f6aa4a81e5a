"""A model spread over two to four processes learns what one process learns, on whole padded batches.

Tolerance after five steps of AdamW with clipping, dropout 0: weights within 1e-9 (float64), losses within 1e-4 (fp32).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agreement.pipeline_ranks import CASES, WORLD, run_rank
from tests.processes import run_forks

DOUBLE = [case.name for case in CASES if case.dtype == torch.float64]
SINGLE = [case.name for case in CASES if case.dtype == torch.float32]
Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found(tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Found:
    """All cases in one set of processes."""
    folder = tmp_path_factory.mktemp("pipeline")
    results = folder / "results"
    models = {name: str(tiny_model(name)) for name in sorted({case.model for case in CASES})}
    calls = [(str(folder / "meeting"), rank, results, models) for rank in range(WORLD)]
    ended = run_forks(run_rank, calls, [os.environ] * WORLD, folder, timeout_seconds=300)
    assert [code for code, _ in ended] == [0] * WORLD, ended
    return {line["case"]: line for line in map(json.loads, results.read_text("utf-8").splitlines())}


@pytest.mark.parametrize("case", DOUBLE)
def test_any_number_of_stages_makes_the_updates_of_one_process(case: str, found: Found) -> None:
    assert found[case]["weights"] <= 1e-9
    assert max(found[case]["losses"]) <= 1e-9
    assert max(found[case]["norms"]) <= 1e-7  # of itself


@pytest.mark.parametrize("case", SINGLE)
def test_losses_in_fp32_are_those_of_one_process(case: str, found: Found) -> None:
    assert max(found[case]["losses"]) <= 1e-4


@pytest.mark.parametrize("case", DOUBLE + SINGLE)
def test_copies_of_a_weight_stay_equal_bit_for_bit(case: str, found: Found) -> None:
    assert set(found[case]["copies"].values()) == {1}


def test_what_is_tied_is_copied_and_learns(found: Found) -> None:
    tied = found["t5, 4 stages, 1f1b, packed blocks float64"]
    assert tied["copied"] == [
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "shared.weight",
    ]
    assert tied["moved"] > 1e-3
    assert found["umt5, 4 stages, gpipe, packed none float64"]["copied"] == []


def test_the_steps_need_wires_of_more_sizes_than_are_kept_and_come_back_to_one(found: Found) -> None:
    """What the tests above would miss otherwise."""
    for case in DOUBLE:
        sizes = found[case]["wires"]
        assert len(set(sizes)) == 3
        assert sizes[-1] in sizes[:-1]


@pytest.mark.parametrize("rank", [0, 1])
def test_recompute_under_1f1b_draws_the_dropout_of_its_own_micro_batch(rank: int, found: Found) -> None:
    assert found[f"recompute with dropout, rank {rank}"]["apart"] == 0


def test_a_stage_that_fails_says_so_itself_and_the_others_do_not_wait_for_ever(found: Found) -> None:
    own, other = found["failure, rank 1"], found["failure, rank 0"]
    assert (own["error"], own["text"]) == ("OutOfMemoryError", "no room for 3 GiB")
    assert other["error"] in ("DistBackendError", "RuntimeError")  # its wait was over: nobody else can end it
