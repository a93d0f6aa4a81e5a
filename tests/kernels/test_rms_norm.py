from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.t5.modeling_t5 import T5LayerNorm

from seqfit.kernels.dropout_norm import RMSNorm


@pytest.mark.parametrize("shape", [(7, 16), (2, 5, 16), (1, 1, 16)])
def test_it_is_t5s_norm_and_has_its_gradients(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    stock = T5LayerNorm(16)
    nn.init.normal_(stock.weight)
    ours = RMSNorm(nn.Parameter(stock.weight.detach().clone()), stock.variance_epsilon)
    states, gradient = torch.randn(shape) * 3, torch.randn(shape)
    results = []
    for norm in (stock, ours):
        given = states.clone().requires_grad_()
        output = norm(given)
        output.backward(gradient)
        results.append((output.detach(), given.grad, norm.weight.grad))
    for mine, reference in zip(results[1], results[0], strict=True):
        assert torch.allclose(mine, reference, rtol=1e-5, atol=1e-6)


def test_it_sums_half_precision_in_fp32_and_returns_its_gradient_in_half() -> None:
    states = torch.randn(3, 16).bfloat16().requires_grad_()
    stock, ours = T5LayerNorm(16), RMSNorm(nn.Parameter(torch.ones(16)), 1e-6)
    assert torch.allclose(ours(states), stock(states), atol=1e-6)
    ours(states).sum().backward()
    assert states.grad is not None
    assert states.grad.dtype == torch.bfloat16


def test_a_frozen_weight_gets_no_gradient() -> None:
    norm = RMSNorm(nn.Parameter(torch.ones(4), requires_grad=False), 1e-6)
    states = torch.randn(2, 4, requires_grad=True)
    norm(states).sum().backward()
    assert norm.weight.grad is None
    assert states.grad is not None


def test_a_weight_in_bf16_gives_gradients_of_its_own_type() -> None:
    """FSDP2 hands weights over in bf16 where a run computes in it; the states stay in fp32."""
    states = torch.randn(5, 8, requires_grad=True)
    weight = torch.nn.Parameter(torch.rand(8).bfloat16())
    norm = RMSNorm(weight, 1e-6)
    norm(states).square().sum().backward()
    exact, same = torch.nn.Parameter(weight.detach().float()), states.detach().clone().requires_grad_()
    RMSNorm(exact, 1e-6)(same).square().sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(states.grad, same.grad)
    torch.testing.assert_close(weight.grad.float(), exact.grad, rtol=1e-2, atol=1e-2)
