from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.errors import PlanError, RecipeError
from seqfit.hardware.cards import find_card
from seqfit.planning.cluster import Cluster, ScalingRow
from seqfit.planning.cluster_prediction import ClusterPrediction, check_fit, predict_cluster
from seqfit.recipe.schema import Recipe
from seqfit.validation import load_checked_recipe

SLOW = 1e7  # bytes per second from machine to machine


@pytest.fixture(scope="module")
def recipe(tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("rows")
    rows = [{"question": " ".join(["w5"] * (3 + n % 40)), "answer": f"w{3 + n % 90}"} for n in range(64)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return load_checked_recipe(
        {
            "model": {"path": str(tiny_model("t5"))},
            "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
            "data": {"path": str(folder / "rows.jsonl"), "holdout": {}},
            "train": {"steps": 4, "batch_examples": 8},
            "strategy": {"micro_batch_tokens": 512},
        }
    )


@pytest.fixture(scope="module")
def predicted(recipe: Recipe) -> ClusterPrediction:
    return predict_cluster(recipe, Cluster(find_card("a100-40-sxm"), 16, 4, SLOW, "given"), ("ddp", "fsdp"))


def find(scaling: ClusterPrediction, way: str, kind: str, count: int) -> ScalingRow:
    return next(row for row in scaling.rows if (row.strategy, row.kind, row.processes) == (way, kind, count))


def test_every_row_is_predicted_and_none_measured(predicted: ClusterPrediction) -> None:
    assert len(predicted.rows) == 2 * 2 * 5
    assert all(row.measured is None and row.predicted is not None for row in predicted.rows)


def test_one_gpu_is_the_baseline_of_every_strategy(predicted: ClusterPrediction) -> None:
    for parallel in ("ddp", "fsdp"):
        for kind in ("strong", "weak"):
            single = find(predicted, parallel, kind, 1).predicted
            assert single is not None
            assert single.efficiency == pytest.approx(1.0)
            assert single.communication_share == 0.0


def test_strong_scaling_keeps_the_batch_and_weak_scaling_enlarges_it(predicted: ClusterPrediction) -> None:
    assert find(predicted, "ddp", "strong", 16).examples == 8
    assert find(predicted, "ddp", "weak", 16).examples == 128


def test_weak_scaling_is_more_efficient_than_strong_scaling(predicted: ClusterPrediction) -> None:
    for parallel in ("ddp", "fsdp"):
        strong, weak = (find(predicted, parallel, kind, 4).predicted for kind in ("strong", "weak"))
        assert strong is not None
        assert weak is not None
        assert strong.efficiency < weak.efficiency
        assert strong.step_seconds <= weak.step_seconds


def test_a_smaller_share_never_takes_longer(predicted: ClusterPrediction) -> None:
    found = [find(predicted, "ddp", "strong", count).predicted for count in (1, 2, 4)]  # of one machine
    computing = [row.step_seconds * (1 - (row.communication_share or 0.0)) for row in found if row is not None]
    assert computing == sorted(computing, reverse=True)


def test_more_gpus_than_examples_are_reported_as_idle(predicted: ClusterPrediction) -> None:
    assert find(predicted, "ddp", "strong", 8).note == ""
    assert find(predicted, "ddp", "strong", 16).note == "8 without an example"
    assert find(predicted, "ddp", "weak", 16).note == ""


def test_fsdp_takes_less_memory_on_more_gpus_of_weak_scaling(predicted: ClusterPrediction) -> None:
    ddp, fsdp = (find(predicted, parallel, "weak", 16).predicted for parallel in ("ddp", "fsdp"))
    assert ddp is not None
    assert fsdp is not None
    assert ddp.highest_bytes is not None
    assert fsdp.highest_bytes is not None
    assert fsdp.highest_bytes < ddp.highest_bytes


def test_a_slow_network_costs_nothing_within_a_machine_and_much_between_them(predicted: ClusterPrediction) -> None:
    within, between = (find(predicted, "ddp", "weak", count).predicted for count in (4, 8))
    assert within is not None
    assert between is not None
    assert within.communication_share is not None
    assert between.communication_share is not None
    assert within.communication_share < 0.1
    assert between.communication_share > 0.5
    assert between.step_seconds > 2 * within.step_seconds


def test_a_precision_that_the_gpu_lacks_is_refused(recipe: Recipe) -> None:
    half = load_checked_recipe(recipe, ["strategy.precision=bf16", "allow=[bf16]"])
    with pytest.raises(PlanError, match="'bf16' on Tesla T4"):
        predict_cluster(half, Cluster(find_card("t4"), 2, 2, SLOW, "given"), ("ddp",))


@pytest.mark.parametrize(
    ("overrides", "parallel", "reason"),
    [
        (["train.optimizer.name=adafactor"], "fsdp", "looks at whole weights"),
        (["train.clip_norm=null", "strategy.optimizer_in_backward=true"], "ddp", "4 processes train together"),
        (["strategy.parallel=fsdp", "strategy.offload=true"], "ddp", "Only fsdp moves weights to the host"),
    ],
)
def test_a_strategy_that_training_refuses_is_not_predicted(
    recipe: Recipe, overrides: list[str], parallel: str, reason: str
) -> None:
    refused = load_checked_recipe(recipe, [*overrides, "data.path=nowhere.jsonl"])
    with pytest.raises(RecipeError, match=reason):  # before the data are read
        predict_cluster(refused, Cluster(find_card("t4"), 4, 4, SLOW, "given"), (parallel,))


def test_offload_takes_less_memory_and_more_time_than_fsdp(recipe: Recipe, predicted: ClusterPrediction) -> None:
    shared = load_checked_recipe(recipe, ["strategy.parallel=fsdp", "strategy.offload=true"])
    offloaded = predict_cluster(shared, Cluster(find_card("a100-40-sxm"), 2, 4, SLOW, "given"), ("fsdp",))
    away, here = find(offloaded, "fsdp", "strong", 2).predicted, find(predicted, "fsdp", "strong", 2).predicted
    assert away is not None
    assert here is not None
    assert (away.highest_bytes or 0) < (here.highest_bytes or 0)
    assert away.step_seconds > here.step_seconds


def test_what_does_not_fit_says_by_how_much() -> None:
    assert check_fit(2**30, 2**30) == (True, "")
    assert check_fit(3 * 2**30, 2**30) == (False, "misses by 2.0 GiB")
