"""Blockwise attention gives what eager attention gives, and its gradients.

Tolerance: 1e-5 of the largest value of each tensor, in fp32 without dropout. A model's step: see steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch
from seqfit.kernels import layout as segments
from seqfit.kernels.attention import attend_blockwise, attend_padded
from seqfit.kernels.dropout_norm import MaskSource
from seqfit.kernels.layout import Pairing, Segments
from seqfit.model.families.t5 import bias_by_distance
from tests.agreement.steps import assert_agree, run_step

TOLERANCE = 1e-5
HEADS, WIDTH = 4, 16


@pytest.fixture(params=[512, 64, 7])
def block(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Queries of a block: whole segments, several blocks, blocks that do not divide the lengths."""
    monkeypatch.setattr(segments, "WHOLE_SEGMENT_TOKENS", request.param)
    monkeypatch.setattr(segments, "BLOCK", request.param)
    return int(request.param)


def build_case(kind: str) -> tuple[Pairing, list[int], list[int], Any]:
    queries = [150, 1, 33, 64]
    keys = [90, 200, 5, 64] if kind == "cross" else queries
    torch.manual_seed(0)
    config = T5Config(d_model=64, d_kv=WIDTH, num_heads=HEADS, is_decoder=kind != "encoder")
    table = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(table.relative_attention_bias.weight)
    pairing = Pairing(Segments(tuple(queries)), Segments(tuple(keys)), causal=kind == "decoder")
    return pairing, queries, keys, table


def attend_eagerly(q: Any, k: Any, v: Any, table: Any, kind: str, scale: float) -> Any:
    """One segment, [L, H, K]."""
    q, k, v = (states.transpose(0, 1) for states in (q, k, v))
    scores = q @ k.transpose(1, 2) * scale
    if kind != "cross":
        scores = scores + table.compute_bias(q.shape[1], k.shape[1])[0]
    if kind == "decoder":
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("scale", [1.0, WIDTH**-0.5])
@pytest.mark.parametrize("attend", [attend_blockwise, attend_padded])
@pytest.mark.usefixtures("block")
def test_attention_by_segments_is_eager_attention(attend: Any, kind: str, scale: float) -> None:
    pairing, queries, keys, table = build_case(kind)
    q = torch.randn(sum(queries), HEADS, WIDTH, requires_grad=True)
    k, v = (torch.randn(sum(keys), HEADS, WIDTH, requires_grad=True) for _ in range(2))
    bias = None if kind == "cross" else bias_by_distance(table, pairing.longest)
    inputs = [q, k, v, *(() if kind == "cross" else (table.relative_attention_bias.weight,))]
    ours = attend(q, k, v, pairing, bias_HR=bias, scale=scale)
    parts = zip(q.split(queries), k.split(keys), v.split(keys), strict=True)
    eager = torch.cat([attend_eagerly(*part, table, kind, scale) for part in parts])
    gradient = torch.randn_like(eager)
    compared = [(ours.detach(), eager.detach())]
    compared += zip(
        torch.autograd.grad(ours, inputs, gradient), torch.autograd.grad(eager, inputs, gradient), strict=True
    )
    for mine, reference in compared:
        assert float((mine - reference).abs().max()) <= TOLERANCE * float(reference.abs().max())


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "umt5", "bart", "marian", "bert"])
@pytest.mark.usefixtures("block")
def test_a_models_step_with_blocks_is_that_with_transformers_eager_attention(
    name: str, fresh_model: Callable[[str], Any], global_batch: Callable[[str, MicroBatchRule], GlobalBatch]
) -> None:
    """Sources and targets of up to 30 tokens: with blocks of 7 queries, several a segment and a last one of 2."""
    eager = fresh_model(name)
    eager.set_attn_implementation("eager")
    padded, packed = (global_batch(name, MicroBatchRule(kind, 10**6)) for kind in ("padded", "packed"))
    assert_agree(run_step(fresh_model(name), packed), run_step(eager, padded))


@pytest.mark.usefixtures("block")
def test_with_dropout_it_is_attention_under_the_masks_of_its_seed() -> None:
    pairing, queries, _, table = build_case("encoder")
    q, k, v = (torch.randn(sum(queries), HEADS, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = bias_by_distance(table.double(), pairing.longest).detach()
    torch.manual_seed(11)
    ours = attend_blockwise(q, k, v, pairing, bias_HR=bias, dropout=0.3)
    torch.manual_seed(11)
    masks = MaskSource(int(torch.randint(2**62, ())), 0.3, q.device)
    rows = []
    for blocks in pairing.segments:
        for block in blocks:
            states = block.take_queries(q) @ block.take_keys(k).transpose(1, 2)
            first, count, seen = block.first, states.shape[1], states.shape[2]
            stock = table.compute_bias(seen, seen)[0, :, first : first + count]
            kept = (states + stock).softmax(-1)
            rows.append(((kept * masks.next(kept.shape) / 0.7) @ block.take_keys(v)).transpose(0, 1))
    reference = torch.cat(rows)
    gradient = torch.randn_like(reference)
    assert torch.allclose(ours, reference)
    mine, expected = (torch.autograd.grad(output, (q, k, v), gradient) for output in (ours, reference))
    assert all(torch.allclose(a, b) for a, b in zip(mine, expected, strict=True))


def test_it_keeps_nothing_of_the_size_of_the_scores() -> None:
    """What autograd saves grows with the length, not with its square."""

    def saved_elements(length: int) -> int:
        sizes: list[int] = []
        pairing = Pairing(Segments((length,)), Segments((length,)), causal=False)
        q, k, v = (torch.randn(length, 1, 4, requires_grad=True) for _ in range(3))
        bias = torch.randn(1, 2 * pairing.longest - 1, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            attend_blockwise(q, k, v, pairing, bias_HR=bias, dropout=0.1).sum().backward()
        return sum(sizes)

    assert saved_elements(4096) == pytest.approx(2 * saved_elements(2048), rel=0.01)
