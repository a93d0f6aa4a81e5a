from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe.fields import join_path
from seqfit.recipe.schema import TrainRecipe
from seqfit.strategy import Strategy
from seqfit.strategy.conflicts import find_conflicts


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
    ("strategy", "said"),
    [
        ({"sharding": "zero2"}, "it is 'zero2' and strategy.parallel is 'auto'. Only fsdp"),
        ({"sharding": "zero3", "parallel": "pipeline"}, "Set strategy.parallel=fsdp"),
        ({"sharding": "zero3", "parallel": "fsdp", "compile": True}, "Set strategy.compile=false"),
        ({"sharding": "zero2", "parallel": "fsdp", "optimizer_in_backward": True}, "DeepSpeed makes the update"),
    ],
)
def test_what_deepspeed_can_not_be_had_with(strategy: dict[str, Any], said: str) -> None:
    assert said in conflicts(strategy, {"clip_norm": None})["strategy.sharding"]


@pytest.mark.parametrize("strategy", [{"precision": "fp16"}, {"optimizer": "8bit"}, {"optimizer": "adafactor"}])
def test_what_fsdp_refuses_deepspeed_refuses(strategy: dict[str, Any]) -> None:
    found = conflicts({"parallel": "fsdp", "sharding": "zero3", **strategy}, {})
    assert "it is 'fsdp'" in found["strategy.parallel"]
