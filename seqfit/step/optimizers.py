"""Builds the update rule a recipe names: AdamW of torch, Adafactor of transformers in both of T5's settings.

Weight decay leaves out what has one dimension (norms, biases) and T5's relative-position tables.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.optimization import Adafactor

from seqfit.recipe.schema import OptimizerRecipe


def build_optimizer(model: nn.Module, optimizer: OptimizerRecipe, learning_rate: float) -> torch.optim.Optimizer:
    """The optimizer over all trainable parameters."""
    groups = _group_by_decay(model, optimizer.weight_decay)
    if optimizer.name == "adamw":
        return torch.optim.AdamW(
            groups,
            lr=learning_rate,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.epsilon,
            fused=True,  # one pass over each tensor; on CPU and CUDA alike
        )
    settings: dict[str, Any] = {"lr": learning_rate, "scale_parameter": False, "relative_step": False}
    if optimizer.relative_step:
        settings = {"lr": None, "scale_parameter": True, "relative_step": True, "warmup_init": True}
    adafactor: torch.optim.Optimizer = Adafactor(groups, **settings)
    return adafactor


def _group_by_decay(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            spared = parameter.ndim < 2 or "relative_attention_bias" in name
            (kept if spared else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
