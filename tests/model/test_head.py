"""The last layer as numbers: a head that is found before its model is moved is the head of the moved model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seqfit.model.families import family_of
from seqfit.model.load import load_model
from seqfit.model.loss import decoder_states
from seqfit.recipe.schema import ModelRecipe


@pytest.mark.parametrize("name", ["bart", "marian"])
def test_a_head_follows_the_bias_that_a_move_replaces(name: str, tiny_model: Callable[[str], Path]) -> None:
    """`.to` another device or type makes new buffers, where it fills parameters in place."""
    model = load_model(ModelRecipe(path=str(tiny_model(name)), dropout=0.0)).eval()
    head = family_of(model).head(model)
    assert head is not None
    model.to(torch.float64)
    model.final_logits_bias.normal_()  # as a checkpoint that is loaded after the move
    assert head.bias_V is not None
    assert head.bias_V.dtype == torch.float64
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        states = decoder_states(model, ids, torch.ones_like(ids), ids)
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), decoder_input_ids=ids).logits
        assert float((head.logits(states) - logits).abs().max()) < 1e-12
