"""T5's position bias as a small table by distance instead of a tensor of query x key.

Shapes: H heads, R distances, C rows of a block, S keys.

The bias of a query i and a key j depends on j - i alone. So a model's bucket table becomes one row per head over all
distances, and the bias of any block of queries is a slice of one band:

    distances -3 .. 3 of one head      a b c d e f g
    band of blocks of 2 queries        row 0: b c d e f g     first block, keys 0 1 2 3: d e f g   second: b c d e
                                       row 1: a b c d e f                                c d e f           a b c d

A band has about 2S columns and as many rows as a block has queries: linear in S. Its gradient is summed along the
diagonals.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def distances(longest: int, device: torch.device) -> torch.Tensor:
    """[R] = -(longest - 1) .. longest - 1."""
    return torch.arange(1 - longest, longest, device=device)


def bias_by_distance(attention: Any, longest: int, device: torch.device | None = None) -> torch.Tensor:
    """[H, R] from the bucket table of a T5 attention module; gradients reach the table.

    The table is called, since FSDP gathers a module's weights when it is called; until then an offloaded one lies on
    the host, whatever the `device` that computes.
    """
    table: nn.Embedding = attention.relative_attention_bias
    bias_RH: torch.Tensor = table(_buckets(attention, distances(longest, device or table.weight.device)))
    return bias_RH.t()


def _buckets(attention: Any, distances_R: torch.Tensor) -> torch.Tensor:
    """The module's own rule. T5's is static and takes its settings, UMT5's reads them from the module."""
    if isinstance(type(attention).__dict__.get("_relative_position_bucket"), staticmethod):
        buckets_R: torch.Tensor = attention._relative_position_bucket(
            distances_R,
            bidirectional=not attention.is_decoder,
            num_buckets=attention.relative_attention_num_buckets,
            max_distance=attention.relative_attention_max_distance,
        )
        return buckets_R
    buckets_R = attention._relative_position_bucket(distances_R)
    return buckets_R


class Band:
    """The bias of every block of up to `rows` queries, ready to be sliced; -inf where a causal mask forbids to look."""

    def __init__(self, bias_HR: torch.Tensor, rows: int, *, causal: bool) -> None:
        self.rows = rows
        self.longest = (bias_HR.shape[1] + 1) // 2
        assert self.longest % rows == 0
        table_HR = bias_HR.detach().to(torch.promote_types(bias_HR.dtype, torch.float32))
        if causal:
            table_HR = table_HR.masked_fill(distances(self.longest, table_HR.device) > 0, float("-inf"))
        # Window w starts at distance w - (longest - 1); row r of the band is window rows - 1 - r.
        self.values_HCR = table_HR.unfold(1, 2 * self.longest - rows, 1).flip(1)

    def columns(self, first_query: int, keys: int) -> slice:
        """Where a block that begins at a query finds its keys."""
        start = self.longest - self.rows - first_query
        return slice(start, start + keys)

    def block(self, first_query: int, queries: int, keys: int) -> torch.Tensor:
        """[H, queries, keys]; H is 1 where there is no bias but a causal mask."""
        return self.values_HCR[:, :queries, self.columns(first_query, keys)]


def sum_diagonals(gradient_HCR: torch.Tensor) -> torch.Tensor:
    """[H, R]: the gradient of the bias by distance from that of a band."""
    heads, rows, width = gradient_HCR.shape
    padded = nn.functional.pad(gradient_HCR, (rows - 1, rows - 1))
    stride = width + 2 * rows - 1  # one more than a row's width: each row is read one column further left
    skewed = padded.as_strided((heads, rows, width + rows - 1), (padded.stride(0), stride, 1))
    return skewed.sum(1)
