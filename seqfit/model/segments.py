"""Where the examples of a packed row begin and end: lengths known on the host, so that nothing waits for the device.

two examples, sources of 3 and 2 tokens, targets of 1 and 4:
source row  a a a b b         Segments((3, 2)): starts 0 3
target row  a b b b b         Segments((1, 4)): starts 0 1
Layout                        what the attention of every layer is told: `layout=` from the stack downwards
layout.cross                  queries from the target, keys from the source, segment by segment
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from seqfit.model.distance_bias import Band

WHOLE = 512  # a segment up to this length is one block of queries
BLOCK = 256  # queries of a block in longer ones


@dataclass(frozen=True)
class Segments:
    """Consecutive pieces of one row."""

    lengths: tuple[int, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each begins."""
        return tuple(accumulate(self.lengths, initial=0))[:-1]

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest."""
        return max(self.lengths)

    def to_tensor(self, device: torch.device) -> torch.Tensor:
        """[B]: the lengths."""
        return _to_row(np.array(self.lengths), device)[0]

    def positions(self, device: torch.device) -> torch.Tensor:
        """[1, N]: 0 1 2 0 1 for pieces of 3 and 2."""
        return _to_row(np.concatenate([np.arange(length) for length in self.lengths]), device)

    def first_tokens(self, device: torch.device) -> torch.Tensor:
        """[B]: where each piece begins, as a tensor."""
        return _to_row(np.array(self.starts), device)[0]


@dataclass(frozen=True)
class Block:
    """Some queries of one segment, and the keys that they look at."""

    queries: slice  # of the packed row
    keys: slice
    first: int  # which of the segment's queries is the block's first

    def take_queries(self, states_NHK: torch.Tensor) -> torch.Tensor:
        """[H, C, K], a view."""
        return states_NHK[self.queries].transpose(0, 1)

    def take_keys(self, states_NHK: torch.Tensor) -> torch.Tensor:
        """[H, L, K], a view."""
        return states_NHK[self.keys].transpose(0, 1)


class Pairing:
    """Which queries look at which keys, cut into blocks; shared by all layers of a stack."""

    def __init__(self, queries: Segments, keys: Segments, *, causal: bool) -> None:
        self.queries, self.keys = queries, keys
        self.causal = causal
        longest = queries.longest
        self.rows = count_block_rows(longest)
        self.longest = -(-longest // self.rows) * self.rows  # in whole blocks: a band needs it so
        places = zip(queries.starts, queries.lengths, keys.starts, keys.lengths, strict=True)
        self.segments = [self._cut(*place) for place in places]
        self._band: tuple[torch.Tensor | None, Band] | None = None

    def _cut(self, start: int, length: int, key_start: int, key_length: int) -> list[Block]:
        blocks = []
        for first in range(0, length, self.rows):
            last = min(first + self.rows, length)
            keys = slice(key_start, key_start + (last if self.causal else key_length))
            blocks.append(Block(slice(start + first, start + last), keys, first))
        return blocks

    def band(self, bias_HR: torch.Tensor | None, device: torch.device) -> Band | None:
        """The bias as a band, made once for layers that share it; None where there is neither bias nor causal mask.

        The newest is kept: T5's layers share one bias, UMT5's each have their own.
        """
        if bias_HR is None and not self.causal:
            return None
        if self._band is None or self._band[0] is not bias_HR:
            table_HR = torch.zeros(1, 2 * self.longest - 1, device=device) if bias_HR is None else bias_HR
            self._band = bias_HR, Band(table_HR, self.rows, causal=self.causal)
        return self._band[1]


def count_block_rows(longest: int) -> int:
    """Queries of a block, where the longest segment has so many."""
    return longest if longest <= WHOLE else BLOCK


def is_blockwise(longest_query: int, longest_key: int, blockwise_above: int) -> bool:
    """Whether attention goes block by block through these segments, or pads them for torch's own kernel."""
    return max(longest_query, longest_key) > blockwise_above


class Layout:
    """The pieces of both sides of one micro-batch, and who looks at whom. A classifier has no target.

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


def _to_row(values: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    row = torch.from_numpy(values.astype(np.int64))[None]
    return row if device.type == "cpu" else row.pin_memory().to(device, non_blocking=True)
