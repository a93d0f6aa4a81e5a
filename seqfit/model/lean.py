"""Faster and leaner versions of a model's smallest parts. The same numbers up to rounding, under the same names.

    nn.Dropout                     -> SeededDropout: a byte a mask element instead of four, and a tenth of the time
    T5's ReLU, then nn.Dropout     -> ReluDropout: one tensor is kept for the backward instead of three
    transformers' NewGELU          -> nn.GELU("tanh"): one kernel instead of eight, one tensor kept instead of five
    T5's norm                      -> LeanNorm: one tensor kept instead of three

A GPU's own dropout kernel already keeps bytes; there dropout stays.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import nn
from transformers.activations import NewGELUActivation

from seqfit.kernels.dropout_norm import LeanNorm, ReluDropout, SeededDropout


def make_lean(model: nn.Module, device: torch.device) -> int:
    """Exchange the parts of a model; returns how many."""
    exchanged = 0
    for module in list(model.modules()):
        for name, part in _leaner_parts(module, on_cpu=device.type == "cpu").items():
            setattr(module, name, part.train(module.training))
            exchanged += 1
    return exchanged


def _leaner_parts(module: nn.Module, *, on_cpu: bool) -> dict[str, nn.Module]:
    parts: dict[str, nn.Module] = {}
    for name, part in module.named_children():
        if isinstance(part, NewGELUActivation):
            parts[name] = nn.GELU(approximate="tanh")
        elif _is_t5_norm(part):
            parts[name] = LeanNorm(part.weight, part.variance_epsilon)
        elif type(part) is nn.Dropout and on_cpu:
            parts[name] = SeededDropout(part.p)
    act, dropout = getattr(module, "act", None), getattr(module, "dropout", None)
    follows = type(module).__name__.endswith("DenseActDense")  # its forward is wo(dropout(act(wi(x))))
    if follows and on_cpu and type(act) is nn.ReLU and type(dropout) is nn.Dropout:
        parts |= {"act": ReluDropout(dropout.p), "dropout": nn.Identity()}
    return parts


def _is_t5_norm(part: nn.Module) -> TypeGuard[LeanNorm]:
    """T5LayerNorm and its copies in mT5 and UMT5, in fp32: a weight, an epsilon, no bias."""
    if not type(part).__name__.endswith("T5LayerNorm"):
        return False
    return isinstance(part.weight, nn.Parameter) and part.weight.dtype == torch.float32
