from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.model.load import load_model
from seqfit.planning.candidates import build_variant, find_open_layouts, find_refusals, list_layouts
from seqfit.planning.cluster import ONE_GPU, LayoutCost
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy
from seqfit.tasks import ClassifierHead

PLAIN = build_variant(Strategy(), "bf16")
TWO = (ONE_GPU, *(LayoutCost(way, 2) for way in ("ddp", "fsdp", "offload", "pipeline")))


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[..., Any]:
    def build(name: str, kind: Any = "text-to-text") -> Any:
        return load_model(ModelRecipe(path=str(tiny_model(name)), kind=kind), ClassifierHead(("yes", "no")))

    return build


def test_one_card_is_used_in_one_way() -> None:
    assert list_layouts(1) == (ONE_GPU,)


def test_several_cards_are_used_by_two_four_and_all() -> None:
    assert {spread.way for spread in list_layouts(2)} == {"", "ddp", "fsdp", "pipeline", "offload", "dataparallel"}
    assert sorted({spread.count for spread in list_layouts(6)}) == [1, 2, 4, 6]
    assert [spread.count for spread in list_layouts(8) if spread.way == "offload"] == [2, 4, 8]


@pytest.mark.parametrize(
    ("strategy", "train", "ways"),
    [
        ({}, {}, {"", "ddp", "fsdp", "offload", "pipeline"}),
        ({"optimizer_in_backward": True}, {"clip_norm": None}, {""}),
        ({"optimizer": "8bit"}, {}, {"", "ddp", "pipeline"}),
        ({"precision": "fp16"}, {}, {"", "ddp"}),
        ({}, {"optimizer": {"name": "adafactor"}}, {"", "ddp", "pipeline"}),
        ({}, {"when_not_finite": "higher-precision-retry"}, {"", "ddp", "pipeline"}),
    ],
)
def test_a_strategy_is_open_to_the_ways_that_training_accepts(
    strategy: dict[str, Any], train: dict[str, Any], ways: set[str]
) -> None:
    given, recipe = Strategy.model_validate(strategy), TrainRecipe.model_validate(train)
    assert {spread.way for spread in TWO if not find_refusals(given, spread, recipe)} == ways


def test_what_closes_a_way_is_told_once_in_the_words_of_training(load: Callable[..., Any]) -> None:
    eight_bit = build_variant(Strategy(optimizer="8bit"), "bf16")
    variants = [PLAIN, eight_bit, build_variant(Strategy(optimizer="8bit", recompute="blocks"), "bf16")]
    opened, refusals = find_open_layouts(variants, TWO, TrainRecipe(), load("t5"))
    assert opened[PLAIN] == list(TWO)
    assert [spread.way for spread in opened[eight_bit]] == ["", "ddp", "pipeline"]
    assert [refusal.what for refusal in refusals] == ["fsdp, 2 GPUs; fsdp with offload, 2 GPUs"]
    assert refusals[0].why.startswith("strategy.parallel: it is 'fsdp' and the optimizer is 8-bit AdamW. It looks at")


def test_a_classifier_has_no_pipeline(load: Callable[..., Any]) -> None:
    opened, refusals = find_open_layouts([PLAIN], TWO, TrainRecipe(), load("bert", "classifier"))
    assert [spread.way for spread in opened[PLAIN]] == ["", "ddp", "fsdp", "offload"]
    assert "BertForSequenceClassification" in refusals[0].why


def test_a_pipeline_has_no_more_stages_than_the_model_has_blocks(load: Callable[..., Any]) -> None:
    spreads = (LayoutCost("pipeline", 4), LayoutCost("pipeline", 8))
    opened, refusals = find_open_layouts([PLAIN], spreads, TrainRecipe(), load("t5"))
    assert opened[PLAIN] == [LayoutCost("pipeline", 4)]
    assert refusals[0].what == "pipeline, 8 GPUs"
    assert "the model has 4 blocks" in refusals[0].why
