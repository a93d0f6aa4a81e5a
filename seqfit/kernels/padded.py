"""Attention within each segment of a packed row through torch's own kernel: padded for the attention alone.

Shapes: N packed queries, M packed keys, B segments, Q and L longest query and key segment, H heads, K head width.

    queries of segments 3 + 2      packed  a a a b b     padded  a a a      kernel     packed again
                                                                 b b .

A fixed number of launches however many segments there are, which is what short segments need on a GPU; linear layers
still see no padding. Its scores are kept for the backward, so memory grows with the square of the length: long
segments go to blockwise.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from seqfit.kernels.layout import Pairing, Segments


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
    seen_BHQL = _is_real(pairing.keys, device)[:, None, None]
    if pairing.causal:
        length = pairing.queries.longest
        seen_BHQL = seen_BHQL & torch.ones(length, length, dtype=torch.bool, device=device).tril()
    mask = seen_BHQL if bias_HR is None else _spread(bias_HR, pairing).masked_fill(~seen_BHQL, float("-inf"))
    if mask.is_floating_point():
        mask = mask.to(q_NHK.dtype)
    output_BHQK = F.scaled_dot_product_attention(q_BHQK, k_BHLK, v_BHLK, mask, dropout_p=dropout, scale=scale)
    return output_BHQK.transpose(1, 2).flatten(0, 1).index_select(0, _places(pairing.queries, device))


def _pad(states_NHK: torch.Tensor, segments: Segments) -> torch.Tensor:
    """[B, H, L, K], zeros behind each segment: another row's values might be NaN or Inf."""
    padded = states_NHK.new_zeros((len(segments.lengths) * segments.longest, *states_NHK.shape[1:]))
    padded = padded.index_copy(0, _places(segments, states_NHK.device), states_NHK)
    return padded.view(len(segments.lengths), segments.longest, *states_NHK.shape[1:]).transpose(1, 2)


def _places(segments: Segments, device: torch.device) -> torch.Tensor:
    """[N]: where each packed row goes in a padded batch."""
    return _is_real(segments, device).flatten().nonzero_static(size=sum(segments.lengths)).squeeze(1)


def _is_real(segments: Segments, device: torch.device) -> torch.Tensor:
    """[B, L]: true where a padded batch is not padding."""
    lengths_B = segments.to_tensor(device)
    return torch.arange(segments.longest, device=device) < lengths_B[:, None]


def _spread(bias_HR: torch.Tensor, pairing: Pairing) -> torch.Tensor:
    """[H, Q, L] from the bias by distance; gradients reach it."""
    places = torch.arange(pairing.queries.longest, device=bias_HR.device)
    return bias_HR[:, places - places[:, None] + pairing.longest - 1]
