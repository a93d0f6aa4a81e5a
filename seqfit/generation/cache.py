"""The decoder's caches of the rows that are being generated: what rows leave, and grow in place.

Shapes: B rows, S source, T target, H heads, K head width.

A step costs what its rows cost, so a row that has ended leaves the batch. Its place is taken by a row from the end:
that copies the caches of as many rows as have ended, where a selection would copy all that are left.

    rows        0  1  2  3  4  5        1 and 3 have ended: 4 rows are left, so the places from 4 on are dropped
    holes       1  3                    ended, among the first 4
    movers      4  5                    not ended, among the others
    rows left   0  4  2  5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer

FIRST_CAPACITY = 16  # tokens that the self-attention's cache has room for at first


@dataclass(frozen=True)
class Sources:
    """Encoded sources as the decoder's cross-attention sees them: keys and values, padded to one length."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]  # [B, H, S, K] each
    lengths: tuple[int, ...]  # real tokens

    @property
    def cache_bytes(self) -> int:
        return sum(states.nbytes for layer in self.layers for states in layer)

    def pick(self, row: int) -> Sources:
        """One row, without padding."""
        length = self.lengths[row]
        layers = [(k[row : row + 1, :, :length].clone(), v[row : row + 1, :, :length].clone()) for k, v in self.layers]
        return Sources(layers, (length,))

    def select(self, rows: Sequence[int]) -> Sources:
        """Some of the rows; themselves where it is all of them."""
        if len(rows) == len(self.lengths):
            return self
        rows_B = torch.tensor(rows, device=self.layers[0][0].device)
        layers = [(keys.index_select(0, rows_B), values.index_select(0, rows_B)) for keys, values in self.layers]
        return Sources(layers, tuple(self.lengths[row] for row in rows))


def join_sources(parts: Sequence[Sources]) -> Sources:
    """All rows as one batch. The parts are used up, so that no more than one layer exists twice at a time."""
    if len(parts) == 1:
        return parts[0]
    lengths = tuple(length for part in parts for length in part.lengths)
    layers = []
    for _ in range(len(parts[0].layers)):
        keys, values = zip(*(part.layers.pop(0) for part in parts), strict=True)
        layers.append((_join(keys), _join(values)))
    return Sources(layers, lengths)


@dataclass(frozen=True)
class Move:
    """Rows from the end into the places of ended ones. What has several entries per row has them next to each other."""

    holes: torch.Tensor
    movers: torch.Tensor
    left: int

    def apply(self, states: torch.Tensor, width: int = 1) -> torch.Tensor:
        """The rows left, in the same memory."""
        by_row = states.view(len(states) // width, width, *states.shape[1:])
        if len(self.holes):
            by_row.index_copy_(0, self.holes, by_row.index_select(0, self.movers))
        return states[: self.left * width]


class RowLayer(DynamicLayer):
    """Keys and values of one layer in a buffer with room for more; transformers copies all of them at each token."""

    _buffers: tuple[torch.Tensor, torch.Tensor]  # [B, H, capacity, K] each, of which keys and values are views

    @classmethod
    def of(cls, keys_BHSK: torch.Tensor, values_BHSK: torch.Tensor) -> RowLayer:
        layer = cls()
        layer.fill(keys_BHSK, values_BHSK, keys_BHSK.shape[2])
        return layer

    def fill(self, keys_BHTK: torch.Tensor, values_BHTK: torch.Tensor, length: int) -> None:
        """With so many tokens; what is behind them is room for more."""
        self.lazy_initialization(keys_BHTK, values_BHTK)
        self._set((keys_BHTK, values_BHTK), length)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_settings: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values, those of new tokens at the end."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = (_roomy(key_states, FIRST_CAPACITY), _roomy(value_states, FIRST_CAPACITY))
        old, new = self.get_seq_length(), self.get_seq_length() + key_states.shape[2]
        if new > self._buffers[0].shape[2]:
            capacity = _grow_capacity(new)
            self._buffers = (_roomy(self.keys, capacity), _roomy(self.values, capacity))
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, old:new] = states
        self._set(self._buffers, new)
        return self.keys, self.values

    def move(self, move: Move, width: int = 1) -> None:
        buffers = [move.apply(buffer, width) for buffer in self._buffers]
        self._set((buffers[0], buffers[1]), self.keys.shape[2])

    def copy_rows(self, to: torch.Tensor, of: torch.Tensor) -> None:
        """Some rows become copies of others, which are none of them."""
        for states in (self.keys, self.values):
            states[to] = states.index_select(0, of)

    def shorten(self, length: int) -> None:
        """Forget what follows the first tokens."""
        self._set(self._buffers, length)

    def truncate(self, length: int) -> None:
        """Drop what is padding in every row, if that is a quarter at least: it is a copy."""
        if 4 * length <= 3 * self.keys.shape[2]:
            self._set((self.keys[:, :, :length].contiguous(), self.values[:, :, :length].contiguous()), length)

    def _set(self, buffers: tuple[torch.Tensor, torch.Tensor], length: int) -> None:
        self._buffers = buffers
        self.keys, self.values = (buffer[:, :, :length] for buffer in buffers)


def _grow_capacity(length: int) -> int:
    return length + length // 2


def _roomy(states_BHTK: torch.Tensor, capacity: int) -> torch.Tensor:
    rows, heads, length, width = states_BHTK.shape
    buffer = states_BHTK.new_empty(rows, heads, max(capacity, length), width)
    buffer[:, :, :length] = states_BHTK
    return buffer


def _join(parts_BHSK: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows below each other, padded with zeros: what is masked is still multiplied, so it must be finite."""
    longest = max(part.shape[2] for part in parts_BHSK)
    rows = sum(len(part) for part in parts_BHSK)
    joined = parts_BHSK[0].new_empty(rows, parts_BHSK[0].shape[1], longest, parts_BHSK[0].shape[3])
    row = 0
    for part in parts_BHSK:
        joined[row : row + len(part), :, : part.shape[2]] = part
        joined[row : row + len(part), :, part.shape[2] :] = 0
        row += len(part)
    return joined


def find_last_growth(max_new_tokens: int) -> int:
    """The length of the answers before the caches grow for the last time: a step's memory is largest there."""
    length, capacity = 0, FIRST_CAPACITY
    while capacity < max_new_tokens:
        length, capacity = capacity, _grow_capacity(capacity + 1)
    return length
