from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.recipe.overrides import join_path
from seqfit.recipe.schema import TrainRecipe
from seqfit.strategy import Strategy
from seqfit.strategy.conflicts import check_processes, find_conflicts


def conflicts(strategy: dict[str, Any], train: dict[str, Any]) -> dict[str, str]:
    found = find_conflicts(Strategy.model_validate(strategy), TrainRecipe.model_validate(train))
    return {join_path(path): sentence for path, sentence in found}


@pytest.mark.parametrize(
    ("strategy", "train"),
    [
        ({}, {}),
        ({"optimizer_in_backward": True}, {"clip_norm": None}),
        ({"optimizer_in_backward": True, "precision": "bf16", "recompute": "blocks"}, {"clip_norm": None}),
        ({"optimizer": "8bit"}, {}),
        ({"optimizer": "adafactor"}, {"optimizer": {"name": "adafactor"}}),
        ({"optimizer_kernel": "foreach"}, {}),
        ({"parallel": "fsdp", "sharding": "zero3", "recompute": "blocks", "offload": True}, {}),
        ({"parallel": "fsdp", "sharding": "zero2", "compile": True}, {"clip_norm": None}),
    ],
)
def test_what_goes_together_is_no_conflict(strategy: dict[str, Any], train: dict[str, Any]) -> None:
    assert conflicts(strategy, train) == {}


def test_an_update_in_the_backward_can_not_be_clipped() -> None:
    found = conflicts({"optimizer_in_backward": True}, {})
    assert found["strategy.optimizer_in_backward"].startswith("it is on and train.clip_norm is 1. Clipping needs")
    assert "Set train.clip_norm=null" in found["strategy.optimizer_in_backward"]


def test_an_update_in_the_backward_can_not_wait_for_a_loss_scaler() -> None:
    found = conflicts({"optimizer_in_backward": True, "precision": "fp16"}, {"clip_norm": None})
    assert "loss scaler" in found["strategy.optimizer_in_backward"]
    assert "strategy.precision=bf16 or fp32" in found["strategy.optimizer_in_backward"]


def test_there_is_no_adafactor_in_8_bits() -> None:
    found = conflicts({"optimizer": "8bit"}, {"optimizer": {"name": "adafactor"}})
    assert "Set strategy.optimizer=recipe" in found["strategy.optimizer"]


@pytest.mark.parametrize(
    ("strategy", "train", "rule"),
    [
        ({"optimizer": "adafactor"}, {}, "adafactor"),
        ({"optimizer": "8bit"}, {}, "8bit"),
        ({}, {"optimizer": {"name": "adafactor"}}, "adafactor"),
    ],
)
def test_only_adamw_has_kernels_to_choose_from(strategy: dict[str, Any], train: dict[str, Any], rule: str) -> None:
    found = conflicts({**strategy, "optimizer_kernel": "fused"}, train)
    assert found["strategy.optimizer_kernel"].startswith(f"it is 'fused' and the optimizer is {rule}. Only AdamW")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"sharding": "zero2"}, "it is 'zero2' and strategy.parallel is 'auto'. Only fsdp"),
        ({"sharding": "zero3", "parallel": "pipeline"}, "Set strategy.parallel=fsdp"),
        ({"sharding": "zero3", "parallel": "fsdp", "compile": True}, "Set strategy.compile=false"),
        ({"sharding": "zero2", "parallel": "fsdp", "optimizer_in_backward": True}, "DeepSpeed makes the update"),
    ],
)
def test_what_deepspeed_excludes(strategy: dict[str, Any], message: str) -> None:
    assert message in conflicts(strategy, {"clip_norm": None})["strategy.sharding"]


@pytest.mark.parametrize("strategy", [{"precision": "fp16"}, {"optimizer": "8bit"}, {"optimizer": "adafactor"}])
def test_what_fsdp_refuses_deepspeed_refuses(strategy: dict[str, Any]) -> None:
    found = conflicts({"parallel": "fsdp", "sharding": "zero3", **strategy}, {})
    assert "it is 'fsdp'" in found["strategy.parallel"]


def test_an_update_in_the_backward_is_of_one_process() -> None:
    strategy = Strategy(optimizer_in_backward=True)
    check_processes(strategy, 1)
    with pytest.raises(RecipeError) as caught:
        check_processes(strategy, 2)
    assert str(caught.value) == (
        "strategy.optimizer_in_backward is on, and 2 processes train together. A weight would be updated with one "
        "process's gradient before it is summed over all of them. Set strategy.optimizer_in_backward=false, or train "
        "in one process."
    )


@pytest.mark.parametrize("sharding", ["fsdp2", "zero2", "zero3"])
def test_offload_is_of_several_processes(sharding: Any) -> None:
    strategy = Strategy(parallel="fsdp", sharding=sharding, offload=True)
    check_processes(strategy, 2)
    with pytest.raises(RecipeError) as caught:
        check_processes(strategy, 1)
    assert str(caught.value) == (
        "strategy.offload is on, and one process trains. Weights are moved to the host and back by fsdp, which is for "
        "several processes. Start several (--nproc 2), or set strategy.offload=false."
    )


@pytest.mark.parametrize(
    ("fields", "processes"),
    [({"optimizer_in_backward": True}, 2), ({"parallel": "fsdp", "offload": True}, 1)],
)
def test_a_recipe_alone_does_not_know_how_many_processes_will_train(fields: dict[str, Any], processes: int) -> None:
    strategy, train = Strategy.model_validate(fields), TrainRecipe(clip_norm=None)
    assert find_conflicts(strategy, train) == []
    assert len(find_conflicts(strategy, train, processes)) == 1
    assert find_conflicts(strategy, train, 3 - processes) == []
