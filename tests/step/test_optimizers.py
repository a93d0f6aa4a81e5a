from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqfit.errors import RecipeError
from seqfit.model.load import load_model
from seqfit.recipe.schema import ModelRecipe, OptimizerRecipe
from seqfit.step.optimizers import build_optimizer, set_learning_rate

CPU = torch.device("cpu")
# What the two packages, not seqfit, do at import and when they compile.
PACKAGE_WARNINGS = (
    "ignore:.*torch.jit.script.*:DeprecationWarning",
    "ignore:OptimState8bit does not implement:UserWarning",
)


@pytest.fixture
def model(tiny_model: Callable[[str], Path]) -> Any:
    return load_model(ModelRecipe(path=str(tiny_model("t5"))))


def test_norms_biases_and_position_tables_are_not_decayed(model: nn.Module) -> None:
    optimizer, _ = build_optimizer(model, OptimizerRecipe(weight_decay=0.1), 1e-3, device=CPU)
    decay = {id(tensor): group["weight_decay"] for group in optimizer.param_groups for tensor in group["params"]}
    rates = {name: decay[id(tensor)] for name, tensor in model.named_parameters()}
    spared = {name for name, rate in rates.items() if rate == 0}
    assert spared == {name for name in rates if "layer_norm" in name or "relative_attention_bias" in name}
    assert {rates[name] for name in rates if name not in spared} == {0.1}


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_every_trainable_parameter_is_updated_once_and_a_frozen_one_never(name: str, model: nn.Module) -> None:
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    optimizer, _ = build_optimizer(model, OptimizerRecipe.model_validate({"name": name}), 1e-3, device=CPU)
    held = [id(tensor) for group in optimizer.param_groups for tensor in group["params"]]
    assert sorted(held) == sorted(id(tensor) for tensor in model.parameters() if tensor is not frozen)


def test_adamw_takes_its_constants_from_the_recipe() -> None:
    optimizer, _ = build_optimizer(
        nn.Linear(2, 2), OptimizerRecipe(beta1=0.8, beta2=0.95, epsilon=1e-6), 0.25, device=CPU
    )
    assert isinstance(optimizer, torch.optim.AdamW)
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"], group["fused"]) == (0.25, (0.8, 0.95), 1e-6, True)


def test_decay_alone_shrinks_a_matrix_and_leaves_its_bias() -> None:
    layer = nn.Linear(2, 2)
    before = {name: tensor.detach().clone() for name, tensor in layer.named_parameters()}
    optimizer, _ = build_optimizer(layer, OptimizerRecipe(weight_decay=0.5), 0.1, device=CPU)
    for tensor in layer.parameters():
        tensor.grad = torch.zeros_like(tensor)
    optimizer.step()
    assert torch.allclose(layer.weight, before["weight"] * (1 - 0.1 * 0.5))
    assert torch.equal(layer.bias, before["bias"])


def _adafactor_change(recipe: OptimizerRecipe, size: float) -> tuple[Any, float]:
    """The optimizer and how far one step moves weights of a size."""
    layer = nn.Linear(8, 8, bias=False)
    nn.init.constant_(layer.weight, size)
    optimizer, _ = build_optimizer(layer, recipe, 1e-3, device=CPU)
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


def test_the_fastest_kernel_of_the_device_is_used_and_reported() -> None:
    cases = {"cpu": ("fused", True, False), "cuda": ("fused", True, False), "mps": ("foreach", False, True)}
    for device, (name, fused, foreach) in cases.items():
        optimizer, reason = build_optimizer(nn.Linear(2, 2), OptimizerRecipe(), 0.1, device=torch.device(device))
        assert (optimizer.defaults["fused"], optimizer.defaults["foreach"]) == (fused, foreach)
        assert reason == f"AdamW, {name}: the fastest on {device}"


@pytest.mark.parametrize("kernel", ["fused", "foreach", "loop"])
def test_the_kernels_of_adamw_make_the_same_update(kernel: Any, tiny_model: Callable[[str], Path]) -> None:
    updated = []
    for chosen in ("fused", kernel):
        model: Any = load_model(ModelRecipe(path=str(tiny_model("t5"))))
        optimizer, reason = build_optimizer(model, OptimizerRecipe(weight_decay=0.1), 1e-2, device=CPU, kernel=chosen)
        assert reason == f"AdamW, {chosen}: as the strategy states"
        for number in range(3):
            torch.manual_seed(number)
            for tensor in model.parameters():
                tensor.grad = torch.randn_like(tensor)
            optimizer.step()
        updated.append(torch.cat([tensor.detach().flatten() for tensor in model.parameters()]))
    assert float((updated[0] - updated[1]).abs().max()) <= 1e-6


def test_a_strategys_adafactor_replaces_adamw_at_the_recipes_rate() -> None:
    optimizer, reason = build_optimizer(
        nn.Linear(2, 2), OptimizerRecipe(weight_decay=0.5), 2e-3, device=CPU, override="adafactor"
    )
    assert type(optimizer).__name__ == "Adafactor"
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(2e-3, 0.5), (2e-3, 0.0)]
    assert reason == "Adafactor: instead of the recipe's AdamW"


def test_a_recipes_adafactor_says_whose_rule_it_is() -> None:
    _, reason = build_optimizer(nn.Linear(2, 2), OptimizerRecipe(name="adafactor"), 1e-3, device=CPU)
    assert reason == "Adafactor: the recipe's rule"


def test_8_bits_without_a_package_name_the_command_that_installs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RecipeError, match=r"optimizer is '8bit'\. It needs .* pip install 'seqfit\[bitsandbytes\]'"):
        build_optimizer(nn.Linear(2, 2), OptimizerRecipe(), 1e-3, device=CPU, override="8bit")


@pytest.mark.filterwarnings(*PACKAGE_WARNINGS)
@pytest.mark.parametrize("package", ["bitsandbytes", "torchao"])
def test_8_bit_states_hold_one_byte_per_moment_and_lower_the_loss(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    monkeypatch.setattr("seqfit.step.optimizers.EIGHT_BIT_PACKAGES", (package,))
    torch.manual_seed(0)
    layer = nn.Linear(128, 128)
    optimizer, reason = build_optimizer(layer, OptimizerRecipe(), 1e-2, device=CPU, override="8bit")
    assert reason.startswith(f"AdamW with 8-bit states of {package} ")
    inputs, wanted = torch.randn(64, 128), torch.randn(64, 128)
    losses = []
    for number in range(12):
        set_learning_rate(optimizer, 1e-2 / (1 + number / 10))
        loss = (layer(inputs) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    state = optimizer.state[layer.weight]
    quantized = [value for key, value in state.items() if key in ("state1", "state2", "exp_avg", "exp_avg_sq")]
    assert len(quantized) == 2
    assert {getattr(value, "codes", value).dtype for value in quantized} == {torch.uint8}


def test_a_rate_is_set_for_all_groups_except_those_that_set_their_own(model: nn.Module) -> None:
    adamw, _ = build_optimizer(model, OptimizerRecipe(), 1e-3, device=CPU)
    relative, _ = build_optimizer(model, OptimizerRecipe(name="adafactor", relative_step=True), 1e-3, device=CPU)
    held_as_tensor = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), foreach=False)
    kept = held_as_tensor.param_groups[0]["lr"]
    for optimizer in (adamw, relative, held_as_tensor):
        set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in adamw.param_groups] == [0.5, 0.5]
    assert [group["lr"] for group in relative.param_groups] == [None, None]
    assert held_as_tensor.param_groups[0]["lr"] is kept
    assert float(kept) == 0.5


def test_a_model_without_trainable_weights_is_an_error_in_three_parts() -> None:
    with pytest.raises(RecipeError, match=r"leave no trainable weight\. Training needs .* model\.freeze"):
        build_optimizer(nn.Linear(2, 2).requires_grad_(False), OptimizerRecipe(), 1e-3, device=CPU)
