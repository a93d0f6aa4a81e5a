from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqfit.model.build import load_model
from seqfit.recipe.schema import ModelRecipe, OptimizerRecipe
from seqfit.step.optimizers import build_optimizer


@pytest.fixture
def model(tiny_model: Callable[[str], Path]) -> Any:
    return load_model(ModelRecipe(path=str(tiny_model("t5"))))


def test_norms_biases_and_position_tables_are_not_decayed(model: nn.Module) -> None:
    optimizer = build_optimizer(model, OptimizerRecipe(weight_decay=0.1), 1e-3)
    decay = {id(tensor): group["weight_decay"] for group in optimizer.param_groups for tensor in group["params"]}
    rates = {name: decay[id(tensor)] for name, tensor in model.named_parameters()}
    spared = {name for name, rate in rates.items() if rate == 0}
    assert spared == {name for name in rates if "layer_norm" in name or "relative_attention_bias" in name}
    assert {rates[name] for name in rates if name not in spared} == {0.1}


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_every_trainable_parameter_is_updated_once_and_a_frozen_one_never(name: str, model: nn.Module) -> None:
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    optimizer = build_optimizer(model, OptimizerRecipe.model_validate({"name": name}), 1e-3)
    held = [id(tensor) for group in optimizer.param_groups for tensor in group["params"]]
    assert sorted(held) == sorted(id(tensor) for tensor in model.parameters() if tensor is not frozen)


def test_adamw_takes_its_constants_from_the_recipe() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2), OptimizerRecipe(beta1=0.8, beta2=0.95, epsilon=1e-6), 0.25)
    assert isinstance(optimizer, torch.optim.AdamW)
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"], group["fused"]) == (0.25, (0.8, 0.95), 1e-6, True)


def test_decay_alone_shrinks_a_matrix_and_leaves_its_bias() -> None:
    layer = nn.Linear(2, 2)
    before = {name: tensor.detach().clone() for name, tensor in layer.named_parameters()}
    optimizer = build_optimizer(layer, OptimizerRecipe(weight_decay=0.5), 0.1)
    for tensor in layer.parameters():
        tensor.grad = torch.zeros_like(tensor)
    optimizer.step()
    assert torch.allclose(layer.weight, before["weight"] * (1 - 0.1 * 0.5))
    assert torch.equal(layer.bias, before["bias"])


def _adafactor_change(recipe: OptimizerRecipe, size: float) -> tuple[Any, float]:
    """The optimizer and how far one step moves weights of a size."""
    layer = nn.Linear(8, 8, bias=False)
    nn.init.constant_(layer.weight, size)
    optimizer = build_optimizer(layer, recipe, 1e-3)
    layer.weight.grad = torch.full_like(layer.weight, 0.3)
    optimizer.step()
    return optimizer, float((layer.weight.detach() - size).abs().mean())


def test_adafactor_fine_tunes_with_a_constant_rate_whatever_the_weights_size() -> None:
    recipe = OptimizerRecipe(name="adafactor")
    optimizer, small = _adafactor_change(recipe, 0.1)
    _, large = _adafactor_change(recipe, 10.0)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3]
    assert small == pytest.approx(1e-3, rel=1e-3)
    assert large == pytest.approx(1e-3, rel=1e-2)


def test_adafactors_relative_step_sets_its_own_rate_in_proportion_to_the_weights() -> None:
    recipe = OptimizerRecipe(name="adafactor", relative_step=True)
    optimizer, small = _adafactor_change(recipe, 0.1)
    _, large = _adafactor_change(recipe, 1.0)
    assert [group["lr"] for group in optimizer.param_groups] == [None]
    assert large == pytest.approx(10 * small, rel=0.1)
