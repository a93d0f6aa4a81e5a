"""Small models without weights, and requests to plan for them."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, T5Config

from seqfit.hardware.cards import find_card
from seqfit.model.load import ModelConfig
from seqfit.planning.cluster import ONE_GPU
from seqfit.planning.placement import PlanRequest
from seqfit.planning.shape import assume_workload
from seqfit.planning.target import Target, card_target
from seqfit.recipe.schema import ModelRecipe, TrainRecipe


@pytest.fixture
def model_config() -> ModelConfig:
    config = T5Config(
        vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return ModelConfig(config, {}, AutoModelForSeq2SeqLM)


@pytest.fixture
def card() -> Target:
    return card_target(find_card("rtx3090"), 1)


@pytest.fixture
def make_request(model_config: ModelConfig, card: Target) -> Any:
    def make(**fields: Any) -> PlanRequest:
        chosen = {
            "model_config": model_config,
            "model": ModelRecipe(path="model"),
            "train": TrainRecipe(),
            "allow": ("bf16",),
            "fixed": {},
            "workload": assume_workload(8, 64, 8),
            "target": card,
            "layouts": (ONE_GPU,),
            "lengths_are_assumed": True,
        }
        return PlanRequest(**{**chosen, **fields})

    return make
