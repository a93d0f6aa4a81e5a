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
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be measured and predicted; nothing is."""
    options: dict[str, Any] = {}
    monkeypatch.setattr("seqfit.scaling.report.build_scaling", lambda *_, **given: options.update(given))
    return options


def test_scale_measures_groups_of_processes_here(asked: dict[str, Any]) -> None:
    seqfit.scale(RECIPE, ["train.batch_examples=4"], nproc=[2], ways=["ddp", "fsdp"], weak=True, repeats=1)
    assert asked["asked"] == ScalingOptions((1, 2), ("ddp", "fsdp"), steps=5, repeats=1, kind="weak")
    assert [(group.way, group.count) for group in asked["groups"]] == [("one", 1), ("ddp", 2), ("fsdp", 2)]
    assert [group.recipe.train.batch_examples for group in asked["groups"]] == [4, 8, 8]
    assert asked["cluster"] is None


def test_scale_predicts_for_cards_and_measures_nothing_unless_it_is_told_to(asked: dict[str, Any]) -> None:
    seqfit.scale(RECIPE, gpu="h100-sxm", upto=16, network="50GB/s")
    assert (asked["asked"], list(asked["groups"])) == (None, [])
    assert (asked["cluster"].card.key, asked["cluster"].max_gpus) == ("h100-sxm", 16)
    assert asked["cluster"].network_bytes_per_second == 50e9


def test_scale_tells_a_mistake_before_anything_starts(asked: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="Did you mean 'ddp'"):
        seqfit.scale(RECIPE, ways=["dpp"])
    with pytest.raises(PlanError, match="numbers of processes from 1"):
        seqfit.scale(RECIPE, nproc=[0])
    assert asked == {}
