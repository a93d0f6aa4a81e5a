"""Builds the update rule that a recipe names, or the one that a strategy puts in its place.

In: a model, the recipe's rule and rate, the strategy's kernel and override. Out: the optimizer over all trainable
parameters, and a sentence that says what was chosen, for the run's events.

    rule        state, bytes a weight (fp32)         computed by
    AdamW       8 (two moments)                      fused, foreach or loop: one rule, three kernels
    Adafactor   1 / rows + 1 / columns of 4          transformers, in both of T5's settings
    8bit        2 and a scale for each 256 weights   bitsandbytes, or torchao where that is not installed

Weight decay leaves out what has one dimension (norms, biases) and T5's relative-position tables.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import version
from typing import Any, Literal

import torch
from torch import nn

from seqfit.errors import RecipeError, complain
from seqfit.recipe.schema import OptimizerRecipe
from seqfit.strategy.schema import EIGHT_BIT_PACKAGES

Kernel = Literal["auto", "fused", "foreach", "loop"]
Override = Literal["recipe", "adafactor", "8bit"]
Groups = list[dict[str, Any]]


def build_optimizer(
    model: nn.Module,
    rule: OptimizerRecipe,
    learning_rate: float,
    *,
    device: torch.device,
    kernel: Kernel = "auto",
    override: Override = "recipe",
) -> tuple[torch.optim.Optimizer, str]:
    """The optimizer over all trainable parameters, and what it is."""
    groups = _group_by_decay(model, rule.weight_decay)
    if override == "8bit":
        return _build_8bit(groups, rule, learning_rate)
    if override == "adafactor" or rule.name == "adafactor":
        whose = "the recipe's rule" if rule.name == "adafactor" else "in the place of the recipe's AdamW"
        return _build_adafactor(groups, rule, learning_rate), f"Adafactor: {whose}"
    chosen = _choose_kernel(device) if kernel == "auto" else kernel
    constants = _adamw_constants(rule, learning_rate)
    optimizer = torch.optim.AdamW(groups, **constants, fused=chosen == "fused", foreach=chosen == "foreach")
    return optimizer, f"AdamW, {chosen}: " + (f"the fastest on {device.type}" if kernel == "auto" else "as asked for")


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """For all groups, but for Adafactor's relative steps (None), which set their own."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # torchao's, which refuses a plain number later on
            group["lr"].fill_(learning_rate)
        elif group["lr"] is not None:
            group["lr"] = learning_rate


def _choose_kernel(device: torch.device) -> Kernel:
    """fused is one pass over each tensor; foreach, which launches fewer kernels, runs everywhere."""
    return "fused" if device.type in ("cpu", "cuda") else "foreach"


def _adamw_constants(rule: OptimizerRecipe, learning_rate: float) -> dict[str, Any]:
    return {"lr": learning_rate, "betas": (rule.beta1, rule.beta2), "eps": rule.epsilon}


def _build_adafactor(groups: Groups, rule: OptimizerRecipe, learning_rate: float) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor  # and with it PEFT and the Trainer's: half a second

    settings: dict[str, Any] = {"lr": learning_rate, "scale_parameter": False, "relative_step": False}
    if rule.relative_step:
        settings = {"lr": None, "scale_parameter": True, "relative_step": True, "warmup_init": True}
    adafactor: torch.optim.Optimizer = Adafactor(groups, **settings)
    return adafactor


def _build_8bit(groups: Groups, rule: OptimizerRecipe, learning_rate: float) -> tuple[torch.optim.Optimizer, str]:
    for package in EIGHT_BIT_PACKAGES:
        if importlib.util.find_spec(package) is not None:
            adamw = importlib.import_module(f"{package}.optim").AdamW8bit
            reason = f"AdamW with 8-bit states of {package} {version(package)}, in the place of the recipe's"
            return adamw(groups, **_adamw_constants(rule, learning_rate)), reason
    raise RecipeError(
        complain(
            "strategy.optimizer is '8bit'",
            "that is done by bitsandbytes or torchao, and neither is installed",
            "Run pip install 'seqfit[bitsandbytes]', or set strategy.optimizer=recipe",
        )
    )


def _group_by_decay(model: nn.Module, weight_decay: float) -> Groups:
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            spared = parameter.ndim < 2 or "relative_attention_bias" in name
            (kept if spared else decayed).append(parameter)
    if not decayed and not kept:
        raise RecipeError(
            complain(
                "freezing and adapters leave no weight that learns",
                "training needs at least one",
                "Take a part out of model.freeze (or strategy.freeze), or choose other model.lora.targets",
            )
        )
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
