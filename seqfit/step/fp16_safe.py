"""fp16 for T5 v1.1, mT5 and UMT5: the last product of their feed-forward layers is computed in fp32.

Their gated layers produce large states, and `wo` sums 1,000 to 10,000 of them: beyond fp16's largest number, 65,504,
the result is Inf, and the loss is NaN from then on. `Family.fp32_in_fp16` finds the layers.

    gate(x W0) * (x W1)  fp16   ->   fp32   ->   wo, fp32   ->   added to the residual, which autocast keeps in fp32
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.model import family_of


def keep_outputs_in_fp32(model: PreTrainedModel, device: torch.device) -> str | None:
    """Replace the forward of these layers; describes what was done, None where the model has none."""
    layers = family_of(model).fp32_in_fp16(model)
    for layer in layers:
        layer.forward = _in_fp32(layer, device.type)
    return f"fp16, but for the outputs of {len(layers)} feed-forward layers, which overflow in it" if layers else None


def _in_fp32(output: nn.Module, device_type: str) -> Callable[[torch.Tensor], torch.Tensor]:
    stock = output.forward

    def forward(states: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device_type, enabled=False):
            result: torch.Tensor = stock(states.float())
            return result

    return forward
