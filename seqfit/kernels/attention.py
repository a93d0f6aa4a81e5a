"""Attention within each segment of a packed row: blockwise, or padded for torch's own kernel.

Shapes: N packed tokens (M of keys), H heads, K head width, C queries of a block, L keys it looks at, R distances;
padded: B segments, Q and L longest query and key segment.

**Blockwise** goes through the queries block by block, and once more in the backward:

    queries of segments 3 + 2, keys of segments 3 + 2     scores   x x x . .     only the x are ever computed,
                                                                   x x x . .     a block of rows at a time;
                                                                   x x x . .     the dots do not exist
                                                                   . . . x x
                                                                   . . . x x

Nothing of the size of the scores outlives a block: the backward computes them again from queries and keys, looks the
bias up in a band (layout.py) and draws the dropout mask from its seed again. So memory is linear in the length.

**Padded** is a fixed number of launches however many segments there are, which is what short segments need on a GPU;
linear layers still see no padding. Its scores are kept for the backward: memory grows with the square of the length.

    queries of segments 3 + 2      packed  a a a b b     padded  a a a      kernel     packed again
                                                                 b b .
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from seqfit.kernels.dropout_norm import MaskSource, draw_seed
from seqfit.kernels.layout import BiasBand, Pairing, QueryBlock, Segments, sum_diagonals


def attend_blockwise(
    q_NHK: torch.Tensor,
    k_NHK: torch.Tensor,
    v_NHK: torch.Tensor,
    pairing: Pairing,
    *,
    bias_HR: torch.Tensor | None = None,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> torch.Tensor:
    """[N, H, K]: each query's mean of the values of its own segment, weighted by softmax(scale * q k + bias)."""
    assert (len(q_NHK), len(k_NHK)) == (sum(pairing.queries.lengths), sum(pairing.keys.lengths))
    output_NHK: torch.Tensor = _SegmentAttention.apply(q_NHK, k_NHK, v_NHK, bias_HR, pairing, scale, dropout)
    return output_NHK


class _SegmentAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_NHK: torch.Tensor,
        k_NHK: torch.Tensor,
        v_NHK: torch.Tensor,
        bias_HR: torch.Tensor | None,
        pairing: Pairing,
        scale: float,
        dropout: float,
    ) -> torch.Tensor:
        seed = draw_seed() if dropout else 0
        masks = MaskSource(seed, dropout, q_NHK.device) if dropout else None
        band = pairing.band(bias_HR, q_NHK.device)
        output_NHK = torch.empty_like(q_NHK, memory_format=torch.contiguous_format)
        with torch.autocast(q_NHK.device.type, enabled=False):
            for segment in pairing.segments:
                for block in segment:
                    p_HCL = _probabilities(block, q_NHK, k_NHK, band, scale)
                    if masks is not None:
                        p_HCL.mul_(masks.next(p_HCL.shape).to(p_HCL.dtype))
                    block.take_queries(output_NHK).copy_(torch.bmm(p_HCL.to(v_NHK.dtype), block.take_keys(v_NHK)))
        if masks is not None:
            output_NHK.mul_(masks.scale)
        ctx.save_for_backward(q_NHK, k_NHK, v_NHK, bias_HR)
        ctx.pairing, ctx.scale, ctx.dropout, ctx.seed = pairing, scale, dropout, seed
        ctx.band = None if band is None else weakref.ref(band)  # one per layer would not be linear in memory
        return output_NHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NHK: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q_NHK, k_NHK, v_NHK, bias_HR = ctx.saved_tensors
        masks = MaskSource(ctx.seed, ctx.dropout, q_NHK.device) if ctx.dropout else None
        band = None if ctx.band is None else ctx.band() or ctx.pairing.band(bias_HR, q_NHK.device)
        backward = _Backward(gradient_NHK, q_NHK, k_NHK, v_NHK, band, masks, ctx.scale, ctx.needs_input_grad[3])
        for segment in ctx.pairing.segments:
            backward.add(segment)
        dbias_HR = None if backward.dband_HCR is None else sum_diagonals(backward.dband_HCR)
        return backward.dq_NHK, backward.dk_NHK, backward.dv_NHK, dbias_HR, None, None, None


class _Backward:
    def __init__(
        self,
        gradient_NHK: torch.Tensor,
        q_NHK: torch.Tensor,
        k_NHK: torch.Tensor,
        v_NHK: torch.Tensor,
        band: BiasBand | None,
        masks: MaskSource | None,
        scale: float,
        needs_bias: bool,
    ) -> None:
        self.q_NHK, self.k_NHK, self.v_NHK = q_NHK, k_NHK, v_NHK
        self.gradient_NHK = gradient_NHK if masks is None else gradient_NHK * masks.scale
        self.dq_NHK, self.dk_NHK, self.dv_NHK = (torch.empty_like(states) for states in (q_NHK, k_NHK, v_NHK))
        self.band, self.masks, self.scale = band, masks, scale
        self.dband_HCR = torch.zeros_like(band.values_HCR) if band is not None and needs_bias else None

    def add(self, segment: list[QueryBlock]) -> None:
        """One segment. Several blocks of queries add up in the gradients of its keys and values."""
        dk_HLK, dv_HLK = (segment[-1].take_keys(states_NHK) for states_NHK in (self.dk_NHK, self.dv_NHK))
        if len(segment) == 1:
            self._add_block(segment[0], dk_HLK, dv_HLK, add=False)
            return
        # Sums are contiguous: products added to a view go head by head, a fifth slower. The last block sees all keys.
        dk_sum_HLK, dv_sum_HLK = (view_HLK.new_zeros(view_HLK.shape) for view_HLK in (dk_HLK, dv_HLK))
        for block in segment:
            seen = block.keys.stop - block.keys.start
            self._add_block(block, dk_sum_HLK[:, :seen], dv_sum_HLK[:, :seen], add=True)
        dk_HLK.copy_(dk_sum_HLK)
        dv_HLK.copy_(dv_sum_HLK)

    def _add_block(self, block: QueryBlock, dk_HLK: torch.Tensor, dv_HLK: torch.Tensor, *, add: bool) -> None:
        do_HCK, q_HCK = block.take_queries(self.gradient_NHK), block.take_queries(self.q_NHK)
        p_HCL = _probabilities(block, self.q_NHK, self.k_NHK, self.band, self.scale)
        dp_HCL = torch.bmm(do_HCK, block.take_keys(self.v_NHK).transpose(1, 2)).to(p_HCL.dtype)
        dropped_HCL = p_HCL
        if self.masks is not None:
            kept_HCL = self.masks.next(p_HCL.shape).to(p_HCL.dtype)
            dp_HCL.mul_(kept_HCL)
            dropped_HCL = kept_HCL.mul_(p_HCL)
        _add_product(dv_HLK, dropped_HCL.to(do_HCK.dtype).transpose(1, 2), do_HCK, add=add)
        ds_HCL = torch.ops.aten._softmax_backward_data(dp_HCL, p_HCL, -1, p_HCL.dtype)
        if self.dband_HCR is not None and self.band is not None:
            columns = self.band.columns(block.first, ds_HCL.shape[2])
            self.dband_HCR[:, : ds_HCL.shape[1], columns].add_(ds_HCL)
        if self.scale != 1.0:
            ds_HCL.mul_(self.scale)
        ds_HCL = ds_HCL.to(q_HCK.dtype)
        _add_product(block.take_queries(self.dq_NHK), ds_HCL, block.take_keys(self.k_NHK), add=False)
        _add_product(dk_HLK, ds_HCL.transpose(1, 2), q_HCK, add=add)


def _probabilities(
    block: QueryBlock, q_NHK: torch.Tensor, k_NHK: torch.Tensor, band: BiasBand | None, scale: float
) -> torch.Tensor:
    """[H, C, L] in fp32 at least, of one block of queries."""
    q_HCK, k_HKL = block.take_queries(q_NHK), block.take_keys(k_NHK).transpose(1, 2)
    if band is None:
        scores_HCL = torch.bmm(q_HCK, k_HKL).mul_(scale) if scale != 1.0 else torch.bmm(q_HCK, k_HKL)
    else:
        bias_HCL = band.block(block.first, q_HCK.shape[1], k_HKL.shape[2])
        if q_HCK.dtype == bias_HCL.dtype:
            scores_HCL = torch.baddbmm(bias_HCL, q_HCK, k_HKL, alpha=scale)
        else:
            scores_HCL = torch.bmm(q_HCK, k_HKL).to(bias_HCL.dtype).mul_(scale).add_(bias_HCL)
    return torch.softmax(scores_HCL, -1, dtype=torch.promote_types(scores_HCL.dtype, torch.float32))


def _add_product(into_HLK: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, add: bool) -> None:
    if add:
        into_HLK.baddbmm_(left, right)
    else:
        into_HLK.copy_(torch.bmm(left, right))  # `out=` a view would multiply head by head, a tenth slower


def attend_padded(
    q_NHK: torch.Tensor,
    k_MHK: torch.Tensor,
    v_MHK: torch.Tensor,
    pairing: Pairing,
    *,
    bias_HR: torch.Tensor | None = None,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> torch.Tensor:
    """[N, H, K], as `attend_blockwise`."""
    device = q_NHK.device
    q_BHQK, k_BHLK, v_BHLK = _pad(q_NHK, pairing.queries), _pad(k_MHK, pairing.keys), _pad(v_MHK, pairing.keys)
    seen_BHQL = pairing.keys.padded.is_real(device)[:, None, None]
    if pairing.causal:
        length = pairing.queries.longest
        seen_BHQL = seen_BHQL & torch.ones(length, length, dtype=torch.bool, device=device).tril()
    mask = seen_BHQL if bias_HR is None else _spread(bias_HR, pairing).masked_fill(~seen_BHQL, float("-inf"))
    if mask.is_floating_point():
        mask = mask.to(q_NHK.dtype)
    output_BHQK = F.scaled_dot_product_attention(q_BHQK, k_BHLK, v_BHLK, mask, dropout_p=dropout, scale=scale)
    return output_BHQK.transpose(1, 2).flatten(0, 1).index_select(0, pairing.queries.padded.places(device))


def _pad(states_NHK: torch.Tensor, segments: Segments) -> torch.Tensor:
    """[B, H, L, K], zeros behind each segment: another row's values might be NaN or Inf."""
    padded = states_NHK.new_zeros((len(segments.lengths) * segments.longest, *states_NHK.shape[1:]))
    padded = padded.index_copy(0, segments.padded.places(states_NHK.device), states_NHK)
    return padded.view(len(segments.lengths), segments.longest, *states_NHK.shape[1:]).transpose(1, 2)


def _spread(bias_HR: torch.Tensor, pairing: Pairing) -> torch.Tensor:
    """[H, Q, L] from the bias by distance; gradients reach it."""
    places = torch.arange(pairing.queries.longest, device=bias_HR.device)
    return bias_HR[:, places - places[:, None] + pairing.longest - 1]
