"""Where the examples of a packed row begin and end, and a position bias by distance instead of by query and key.

Lengths are known on the host, so nothing waits for the device.

two examples, sources of 3 and 2 tokens, targets of 1 and 4:
source row  a a a b b         Segments((3, 2)): starts 0 3
target row  a b b b b         Segments((1, 4)): starts 0 1
Layout                        what the attention of every layer gets: `layout=` from the stack downwards
layout.cross                  queries from the target, keys from the source, segment by segment

Shapes: H heads, R distances, C rows of a block, S keys.

The bias of a query i and a key j depends on j - i alone (T5). So a model's bucket table becomes one row per head over
all distances, and the bias of any block of queries is a slice of one band:

    distances -3 .. 3 of one head      a b c d e f g
    band of blocks of 2 queries        row 0: b c d e f g     first block, keys 0 1 2 3: d e f g   second: b c d e
                                       row 1: a b c d e f                                c d e f           a b c d

A band has about 2S columns and as many rows as a block has queries: linear in S. Its gradient is summed along the
diagonals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


def distances(longest: int, device: torch.device) -> torch.Tensor:
    """[R] = -(longest - 1) .. longest - 1."""
    return torch.arange(1 - longest, longest, device=device)


class BiasBand:
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


WHOLE_SEGMENT_TOKENS = 512  # a segment up to this length is one block of queries
BLOCK = 256  # queries of a block in longer ones


@dataclass(frozen=True)
class Segments:
    lengths: tuple[int, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.lengths, initial=0))[:-1]

    @cached_property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def padded(self) -> PaddedPlaces:
        return PaddedPlaces(self)

    def positions(self, device: torch.device) -> torch.Tensor:
        """[1, N]: 0 1 2 0 1 for segments of 3 and 2."""
        return _to_row(np.concatenate([np.arange(length) for length in self.lengths]), device)

    def first_tokens(self, device: torch.device) -> torch.Tensor:
        return _to_row(np.array(self.starts), device)[0]


class PaddedPlaces:
    """Where the tokens of a packed row are in a padded batch; computed once for all layers."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._found: dict[tuple[torch.device, bool], tuple[torch.Tensor, torch.Tensor]] = {}

    def is_real(self, device: torch.device) -> torch.Tensor:
        """[B, L]: true where a padded batch is not padding."""
        return self._find(device)[0]

    def places(self, device: torch.device) -> torch.Tensor:
        """[N]: where each packed row goes in a padded batch."""
        return self._find(device)[1]

    def _find(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        key = device, torch.is_inference_mode_enabled()  # what inference mode makes, autograd may not save
        if key not in self._found:
            lengths = self._segments.lengths
            lengths_1B = _to_row(np.array(lengths), device)
            real_BL = torch.arange(self._segments.longest, device=device) < lengths_1B[0][:, None]
            self._found[key] = real_BL, real_BL.flatten().nonzero_static(size=sum(lengths)).squeeze(1)
        return self._found[key]


@dataclass(frozen=True)
class QueryBlock:
    queries: slice  # of the packed row
    keys: slice
    first: int  # which of the segment's queries is the block's first

    def take_queries(self, states_NHK: torch.Tensor) -> torch.Tensor:
        return states_NHK[self.queries].transpose(0, 1)

    def take_keys(self, states_NHK: torch.Tensor) -> torch.Tensor:
        return states_NHK[self.keys].transpose(0, 1)


class Pairing:
    """Which queries look at which keys, split into blocks; shared by all layers of a stack."""

    def __init__(self, queries: Segments, keys: Segments, *, causal: bool) -> None:
        self.queries, self.keys = queries, keys
        self.causal = causal
        longest = queries.longest
        self.rows = count_block_rows(longest)
        self.longest = -(-longest // self.rows) * self.rows  # in whole blocks: a band needs it so
        places = zip(queries.starts, queries.lengths, keys.starts, keys.lengths, strict=True)
        self.segments = [self._split(*place) for place in places]
        self._band: tuple[torch.Tensor | None, BiasBand] | None = None

    def _split(self, start: int, length: int, key_start: int, key_length: int) -> list[QueryBlock]:
        blocks = []
        for first in range(0, length, self.rows):
            last = min(first + self.rows, length)
            keys = slice(key_start, key_start + (last if self.causal else key_length))
            blocks.append(QueryBlock(slice(start + first, start + last), keys, first))
        return blocks

    def band(self, bias_HR: torch.Tensor | None, device: torch.device) -> BiasBand | None:
        """The bias as a band, computed once for layers that share it; None where there is neither bias nor causal mask.

        The newest is kept: T5's layers share one bias, UMT5's each have their own.
        """
        if bias_HR is None and not self.causal:
            return None
        if self._band is None or self._band[0] is not bias_HR:
            table_HR = torch.zeros(1, 2 * self.longest - 1, device=device) if bias_HR is None else bias_HR
            self._band = bias_HR, BiasBand(table_HR, self.rows, causal=self.causal)
        return self._band[1]


def count_block_rows(longest: int) -> int:
    return longest if longest <= WHOLE_SEGMENT_TOKENS else BLOCK


def is_blockwise(longest_query: int, longest_key: int, blockwise_above: int) -> bool:
    """Whether attention goes block by block through these segments, or pads them for torch's own kernel."""
    return max(longest_query, longest_key) > blockwise_above


class Layout:
    """The segments of both sides of one micro-batch, and who looks at whom. A classifier has no target.

    Attention is blockwise where a row of queries or keys has a segment longer than `blockwise_above` tokens.
    """

    def __init__(
        self, source_lengths: Sequence[int], target_lengths: Sequence[int] | None = None, *, blockwise_above: int = 0
    ) -> None:
        self.blockwise_above = blockwise_above
        self.source = Segments(tuple(source_lengths))
        self.target = None if target_lengths is None else Segments(tuple(target_lengths))
        self.encoder = Pairing(self.source, self.source, causal=False)
        if self.target is not None:
            self.decoder = Pairing(self.target, self.target, causal=True)
            self.cross = Pairing(self.target, self.source, causal=False)

    def pairing_of(self, module: Any) -> Pairing:
        """Which queries and keys an attention module of transformers sees."""
        if getattr(module, "is_causal", False):
            return self.decoder
        return self.cross if getattr(module, "is_decoder", False) else self.encoder


def _to_row(values: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    row = torch.from_numpy(values.astype(np.int64))[None]
    return row if device.type == "cpu" else row.pin_memory().to(device, non_blocking=True)
