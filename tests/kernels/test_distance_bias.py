from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import T5Config, UMT5Config
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.umt5.modeling_umt5 import UMT5Attention

from seqfit.kernels.layout import BiasBand, sum_diagonals
from seqfit.model.families.t5 import bias_by_distance

SHAPE = {"d_model": 32, "d_kv": 8, "num_heads": 4}


@pytest.fixture(params=["T5 encoder", "T5 decoder", "UMT5 encoder", "UMT5 decoder"])
def attention(request: Any) -> Any:
    family, side = request.param.split()
    config, module = (T5Config, T5Attention) if family == "T5" else (UMT5Config, UMT5Attention)
    torch.manual_seed(0)
    built = module(config(**SHAPE, is_decoder=side == "decoder"), has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(built.relative_attention_bias.weight)
    return built


@pytest.mark.parametrize("rows", [300, 100, 20])
def test_every_block_of_a_band_is_the_bias_of_transformers(attention: Any, rows: int) -> None:
    band = BiasBand(bias_by_distance(attention, 300), rows, causal=False)
    stock = attention.compute_bias(300, 300)[0]
    for first in range(0, 300, rows):
        assert torch.equal(band.block(first, rows, 300), stock[:, first : first + rows])


def test_a_causal_band_forbids_what_lies_ahead_and_nothing_else() -> None:
    values = BiasBand(torch.arange(7.0)[None], 2, causal=True).block(2, 2, 4)[0]
    assert values.tolist() == [[1, 2, 3, -torch.inf], [0, 1, 2, 3]]


@pytest.mark.parametrize(("longest", "rows"), [(6, 6), (6, 3), (6, 1)])
def test_the_sum_of_diagonals_is_the_gradient_of_the_table(longest: int, rows: int) -> None:
    """A band is linear in its table, so that autograd through the same slices is the reference."""
    table = torch.randn(2, 2 * longest - 1, dtype=torch.float64, requires_grad=True)
    width = 2 * longest - rows
    band = torch.stack([table[:, rows - 1 - row :][:, :width] for row in range(rows)], 1)
    assert torch.equal(band.detach(), BiasBand(table, rows, causal=False).values_HCR)
    gradient = torch.randn_like(band)
    band.backward(gradient)
    assert torch.allclose(sum_diagonals(gradient), table.grad)
