from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.errors import PlanError
from seqfit.scaling.measure import ScalingOptions

RECIPE: dict[str, Any] = {
    "model": {"name": "t5-small"},
    "task": {"name": "qa", "source": "{q}", "target": "{a}"},
    "data": {"path": "rows.jsonl"},
    "train": {"steps": 5, "batch_examples": 8},
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be measured and predicted; nothing is."""
    found: dict[str, Any] = {}
    monkeypatch.setattr("seqfit.scaling.report.build_scaling", lambda *_, **options: found.update(options))
    return found


def test_scale_measures_groups_of_processes_here(given: dict[str, Any]) -> None:
    seqfit.scale(RECIPE, ["train.batch_examples=4"], nproc=[2], parallel=["ddp", "fsdp"], weak=True, repeats=1)
    assert given["options"] == ScalingOptions((1, 2), ("ddp", "fsdp"), steps=5, repeats=1, weak=True)
    assert [(group.strategy, group.count) for group in given["groups"]] == [("single", 1), ("ddp", 2), ("fsdp", 2)]
    assert [group.recipe.train.batch_examples for group in given["groups"]] == [4, 8, 8]
    assert given["cluster"] is None


def test_scale_predicts_for_gpus_and_measures_only_with_nproc(given: dict[str, Any]) -> None:
    seqfit.scale(RECIPE, gpu="h100-sxm", upto=16, network="50GB/s")
    assert (given["options"], list(given["groups"])) == (None, [])
    assert (given["cluster"].card.key, given["cluster"].max_gpus) == ("h100-sxm", 16)
    assert given["cluster"].network_bytes_per_second == 50e9


def test_a_mistake_is_reported_before_anything_starts(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="Did you mean 'ddp'"):
        seqfit.scale(RECIPE, parallel=["dpp"])
    with pytest.raises(PlanError, match="numbers of processes from 1"):
        seqfit.scale(RECIPE, nproc=[0])
    assert given == {}
