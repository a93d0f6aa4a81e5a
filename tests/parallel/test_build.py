from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqfit.errors import RecipeError
from seqfit.model.load import load_model
from seqfit.parallel.build import build_step
from seqfit.parallel.world import SINGLE_PROCESS, World
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step.precision import Precision
from seqfit.strategy.schema import Strategy


@pytest.mark.parametrize(
    ("fields", "world", "said"),
    [
        ({"parallel": "fsdp", "offload": True}, SINGLE_PROCESS, "strategy.offload is on, and one process trains"),
        ({"parallel": "fsdp", "sharding": "zero3", "offload": True}, SINGLE_PROCESS, "Start several"),
        ({"optimizer_in_backward": True}, World(0, 2, 0, 2), "2 processes train together"),
    ],
)
def test_no_step_is_built_that_would_ignore_a_field_of_the_strategy(
    fields: dict[str, Any], world: World, said: str, tiny_model: Callable[[str], Path]
) -> None:
    model, train = load_model(ModelRecipe(path=str(tiny_model("t5")))), TrainRecipe(clip_norm=None)
    precision = Precision("fp32", torch.device("cpu"), "")
    with pytest.raises(RecipeError, match=said):
        build_step(model, train, Strategy.model_validate(fields), precision, world=world)
