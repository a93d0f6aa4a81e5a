"""The last layer of a text-to-text model as numbers: what turns the decoder's states into logits.

Knowing it, the loss can be computed in chunks from the decoder's states, and logits of all target tokens never exist.

    T5            logits = (states * d_model**-0.5) W     the scale belongs to the tied head
    v1.1, mT5     logits = states W
    M2M100, NLLB  logits = states W
    BART          logits = states W + final_logits_bias
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.model.families import HEAD_TYPES


@dataclass(frozen=True)
class Head:
    """logits = scale * states @ weight.T + bias."""

    linear: nn.Linear
    scale: float
    owner: nn.Module  # of the bias, a buffer: moving a module to another device or type replaces its buffers

    @property
    def weight_VD(self) -> torch.Tensor:
        """The matrix as it is now: sharding and tying exchange it."""
        return self.linear.weight

    @property
    def bias_V(self) -> torch.Tensor | None:
        """None where there is none, or where it is a buffer of zeros that was never set."""
        bias_1V: torch.Tensor | None = getattr(self.owner, "final_logits_bias", None)
        return None if bias_1V is None else bias_1V[0]

    def scaled(self, states: torch.Tensor) -> torch.Tensor:
        """The states as the matrix takes them."""
        return states if self.scale == 1.0 else states * self.scale

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[..., V]."""
        return nn.functional.linear(self.scaled(states), self.weight_VD, self.bias_V)


def find_head(model: PreTrainedModel) -> Head | None:
    """None for a model whose last layer is not known here: its own forward computes its logits."""
    kind = model.config.model_type
    linear: Any = getattr(model, "lm_head", None)
    if not isinstance(linear, nn.Linear) or kind not in HEAD_TYPES:
        return None
    return Head(linear, _scale(model), model)


def _scale(model: PreTrainedModel) -> float:
    config = model.config
    scaled = {"t5": "scale_decoder_outputs", "umt5": "tie_word_embeddings"}.get(config.model_type)
    return float(config.d_model) ** -0.5 if scaled is not None and getattr(config, scaled) else 1.0
