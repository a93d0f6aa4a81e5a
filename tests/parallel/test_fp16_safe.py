from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from seqfit.model.load import load_model
from seqfit.parallel.execution import keep_outputs_in_fp32
from seqfit.recipe.schema import ModelRecipe

CPU = torch.device("cpu")


def test_a_gated_layer_that_overflows_in_fp16_does_not_any_more(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("mt5"))))
    layer = model.encoder.block[0].layer[1].DenseReluDense
    with torch.no_grad():
        layer.wo.weight.fill_(3e4)
    states = torch.ones(1, 3, layer.wi_0.in_features)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        layer.wi_0.weight.fill_(1.0)
        layer.wi_1.weight.fill_(1.0)
        assert layer(states).isinf().any()
        said = keep_outputs_in_fp32(model, CPU)
        assert layer(states).dtype == torch.float32
        assert layer(states).isfinite().all()
    assert said is not None
    assert "feed-forward layers" in said


def test_a_model_without_gates_stays_as_it_is(tiny_model: Callable[[str], Path]) -> None:
    assert keep_outputs_in_fp32(load_model(ModelRecipe(path=str(tiny_model("t5")))), CPU) is None
