from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.model.load import load_model
from seqfit.planning.candidates import build_variant, find_open_layouts, find_refusals, list_layouts
from seqfit.planning.cluster import ONE_GPU, GpuLayout
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy
from seqfit.tasks import ClassifierHead

PLAIN = build_variant(Strategy(), "bf16")
TWO = (ONE_GPU, *(GpuLayout(parallel, 2) for parallel in ("ddp", "fsdp", "offload", "pipeline")))


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[..., Any]:
    def build(name: str, kind: Any = "text-to-text") -> Any:
        return load_model(ModelRecipe(path=str(tiny_model(name)), kind=kind), ClassifierHead(("yes", "no")))

    return build


def test_one_gpu_has_one_layout() -> None:
    assert list_layouts(1) == (ONE_GPU,)


def test_layouts_of_several_gpus_use_two_four_and_all() -> None:
    assert {layout.parallel for layout in list_layouts(2)} == {"", "ddp", "fsdp", "pipeline", "offload", "dataparallel"}
    assert sorted({layout.count for layout in list_layouts(6)}) == [1, 2, 4, 6]
    assert [layout.count for layout in list_layouts(8) if layout.parallel == "offload"] == [2, 4, 8]


@pytest.mark.parametrize(
    ("strategy", "train", "allowed"),
    [
        ({}, {}, {"", "ddp", "fsdp", "offload", "pipeline"}),
        ({"optimizer_in_backward": True}, {"clip_norm": None}, {""}),
        ({"optimizer": "8bit"}, {}, {"", "ddp", "pipeline"}),
        ({"precision": "fp16"}, {}, {"", "ddp"}),
        ({}, {"optimizer": {"name": "adafactor"}}, {"", "ddp", "pipeline"}),
        ({}, {"when_not_finite": "higher-precision-retry"}, {"", "ddp", "pipeline"}),
    ],
)
def test_a_strategy_allows_the_layouts_that_training_accepts(
    strategy: dict[str, Any], train: dict[str, Any], allowed: set[str]
) -> None:
    given, recipe = Strategy.model_validate(strategy), TrainRecipe.model_validate(train)
    assert {layout.parallel for layout in TWO if not find_refusals(given, layout, recipe)} == allowed


def test_what_rules_a_layout_out_is_reported_once_in_the_words_of_training(load: Callable[..., Any]) -> None:
    eight_bit = build_variant(Strategy(optimizer="8bit"), "bf16")
    variants = [PLAIN, eight_bit, build_variant(Strategy(optimizer="8bit", recompute="blocks"), "bf16")]
    opened, refusals = find_open_layouts(variants, TWO, TrainRecipe(), load("t5"))
    assert opened[PLAIN] == list(TWO)
    assert [layout.parallel for layout in opened[eight_bit]] == ["", "ddp", "pipeline"]
    assert [refusal.what for refusal in refusals] == ["fsdp x 2; fsdp x 2, offload"]
    assert refusals[0].why.startswith("strategy.parallel: it is 'fsdp' and the optimizer is 8-bit AdamW. It looks at")


def test_a_classifier_has_no_pipeline(load: Callable[..., Any]) -> None:
    opened, refusals = find_open_layouts([PLAIN], TWO, TrainRecipe(), load("bert", "classifier"))
    assert [layout.parallel for layout in opened[PLAIN]] == ["", "ddp", "fsdp", "offload"]
    assert "BertForSequenceClassification" in refusals[0].why


def test_a_pipeline_has_no_more_stages_than_the_model_has_blocks(load: Callable[..., Any]) -> None:
    layouts = (GpuLayout("pipeline", 4), GpuLayout("pipeline", 8))
    opened, refusals = find_open_layouts([PLAIN], layouts, TrainRecipe(), load("t5"))
    assert opened[PLAIN] == [GpuLayout("pipeline", 4)]
    assert refusals[0].what == "pipeline x 8"
    assert "the model has 4 blocks" in refusals[0].why
