"""T5's norm (root mean square, no bias) with one tensor kept for the backward, where its formula keeps three.

Shapes: N tokens of any leading shape, D model.

    y = w * x / sqrt(mean(x^2) + epsilon)

    with r = 1 / sqrt(...), n = x * r, g the gradient of y:    dw = sum of g * n over tokens
                                                               dx = r * (g * w - n * mean(g * w * n))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class _RootMeanSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight_D: torch.Tensor, epsilon: float) -> torch.Tensor:
        states_ND = states.reshape(-1, states.shape[-1]).to(torch.promote_types(states.dtype, torch.float32))
        norm_N1 = torch.linalg.vector_norm(states_ND, dim=1, keepdim=True)
        factor_N1 = norm_N1.square_().div_(states.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(states, weight_D, factor_N1)
        return torch.mul(states_ND, factor_N1).mul_(weight_D).view(states.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        states, weight_D, factor_N1 = ctx.saved_tensors
        gradient_ND = gradient.reshape(-1, gradient.shape[-1])
        normed_ND = states.reshape(gradient_ND.shape) * factor_N1
        product_ND = gradient_ND * normed_ND
        dweight_D = product_ND.sum(0).to(weight_D.dtype) if ctx.needs_input_grad[1] else None
        weight_D = weight_D.to(product_ND.dtype)  # FSDP2 may hand it over in bf16
        share_N1 = torch.mv(product_ND, weight_D).mul_(-1 / len(weight_D))[:, None]
        dstates_ND = torch.mul(gradient_ND, weight_D, out=product_ND)
        dstates_ND.addcmul_(normed_ND, share_N1).mul_(factor_N1)
        return dstates_ND.view(gradient.shape).to(states.dtype), dweight_D, None


class LeanNorm(nn.Module):
    """In the place of a T5LayerNorm, with its weight."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight = weight
        self.variance_epsilon = epsilon

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """[..., D]."""
        output: torch.Tensor = _RootMeanSquare.apply(hidden_states, self.weight, self.variance_epsilon)
        return output
