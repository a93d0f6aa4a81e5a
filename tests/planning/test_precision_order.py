"""Half precision is not slower than fp32 where there is enough to compute, on any GPU that has it."""

from __future__ import annotations

import pytest

from seqfit.hardware.cards import Card, load_cards
from seqfit.model.load import ModelConfig
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import uniform
from seqfit.planning.step_model import StepModel
from seqfit.planning.timing import rates_of_card
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

CARDS = [card for card in load_cards().values() if card.has_bf16]
SHAPES = [uniform(count, 448, 64, packed=True) for count in (4, 16)]  # 2,048 and 8,192 tokens


@pytest.fixture(scope="module")
def models() -> dict[str, StepModel]:
    """t5-base in both precisions."""
    recipe = ModelRecipe.model_validate({"name": "google-t5/t5-base", "weights": "random"})
    model_config = ModelConfig.load(recipe, may_be_known=True)
    found = {}
    for precision in ("fp32", "bf16"):
        spec = StepSpec(model_config, recipe, TrainRecipe(), Strategy(), precision, rules_for("gpu"))
        found[precision] = StepModel(FakeStep(spec), SHAPES[0])
    return found


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.key)
def test_bf16_is_not_slower_than_fp32_from_t5_base_and_2048_tokens_on(card: Card, models: dict[str, StepModel]) -> None:
    steps = [[shape] for shape in SHAPES]
    bf16, fp32 = (models[name].step_seconds(steps, rates_of_card(card, name)) for name in ("bf16", "fp32"))
    assert (bf16 <= fp32).all(), f"{bf16} and {fp32} s"
    assert fp32[1] > fp32[0]
    assert bf16[1] > bf16[0]
