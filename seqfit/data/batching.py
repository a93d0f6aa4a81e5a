"""The one place where batches are split: rows -> epochs -> global batches -> micro-batches. Numbers only, no tensors.

An epoch's order is a pure function of seed and epoch number, so a position in the data is two numbers.

    lengths (source, target)   9,1  2,1  8,1  3,1        order of the epoch: 0 1 2 3
    global batch of 4          [0 1 2 3]
    micro-batches of 20 tokens, grouped (sorted by length first):  [1 3] = 2 x (3+1),  [2 0] = 2 x (9+1)
    the same, padded (order kept):                                 [0 1] = 2 x (9+1),  [2 3] = 2 x (8+1)
    the same, packed (order kept, real tokens, evenly filled):     [0 1] = 13,         [2 3] = 13

However it is split, the global batch is the same: the update does not depend on the micro-batches. With several ranks,
each is assigned rows of about the same predicted cost, the most expensive first, and splits its own:

    costs of rows 0 1 2 3    9 2 8 3      two ranks: [0 1] = 11, [2 3] = 11

`CostModel` predicts the cost of an example from its lengths, in any unit, because only ratios matter:

    CostModel(source_token=1, target_token=3, source_pair=0.01)
    sources 100, 10; targets 5, 5     ->     100 + 15 + 100, 10 + 15 + 1   =   215, 26
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seqfit.strategy import Batching

RowNumbers = npt.NDArray[np.int64]
RowLengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class MicroBatchRule:
    batching: Batching = "grouped"
    tokens: int = 6144  # source plus target, padding included
    examples: int | None = None
    pad_multiple: int = 1
    pad_source_tokens: int | None = None  # max_length: every source is padded to this
    pad_target_tokens: int | None = None

    def padded_shape(self, longest_source: int, longest_target: int) -> tuple[int, int]:
        """Source and target tokens per example in a micro-batch with these longest sequences."""
        if self.batching == "max_length":
            longest_source = max(longest_source, self.pad_source_tokens or 0)
            longest_target = max(longest_target, self.pad_target_tokens or 0)
        return _round_up(longest_source, self.pad_multiple), _round_up(longest_target, self.pad_multiple)

    def count_padding(self, source_lengths: RowLengths, target_lengths: RowLengths) -> int:
        if self.batching == "packed":
            return 0
        shape = self.padded_shape(int(source_lengths.max()), int(target_lengths.max()))
        return len(source_lengths) * sum(shape) - int(source_lengths.sum()) - int(target_lengths.sum())

    def count_packed(self, tokens: int) -> int:
        return max(1, math.ceil(tokens / self.tokens))

    def split(
        self, rows: RowNumbers, source_lengths: RowLengths, target_lengths: RowLengths, *, least: int = 1
    ) -> Iterator[RowNumbers]:
        """Pieces of one global batch, each within the rule's tokens and examples after padding.

        `least`: at least so many packed pieces, because another rank needs them; with too few rows there are fewer.
        """
        if self.batching == "packed":
            yield from self._split_evenly(rows, source_lengths[rows] + target_lengths[rows], least)
            return
        if self.batching == "grouped":
            rows = rows[np.lexsort((target_lengths[rows], source_lengths[rows]))]
        piece: list[int] = []
        longest_source = longest_target = 0
        for row in rows.tolist():
            source, target = int(source_lengths[row]), int(target_lengths[row])
            shape = self.padded_shape(max(longest_source, source), max(longest_target, target))
            too_many = self.examples is not None and len(piece) >= self.examples
            if piece and (too_many or (len(piece) + 1) * sum(shape) > self.tokens):
                yield np.array(piece, dtype=np.int64)
                piece, longest_source, longest_target = [], 0, 0
            piece.append(row)
            longest_source, longest_target = max(longest_source, source), max(longest_target, target)
        if piece:
            yield np.array(piece, dtype=np.int64)

    def _split_evenly(self, rows: RowNumbers, tokens: RowLengths, least: int) -> Iterator[RowNumbers]:
        """As few pieces as the budget allows, about equally large: a small last one would cost as much as a large one.

        A row longer than the budget is a piece of its own.
        """
        total = int(tokens.sum())
        share = total / max(least, self.count_packed(total))
        start, used, before, number = 0, 0, 0, 1
        for position, length in enumerate(tokens.tolist()):
            full = used + length > self.tokens or (self.examples is not None and position - start >= self.examples)
            has_its_share = before + used + length / 2 > number * share
            if position > start and (full or has_its_share):
                yield rows[start:position]
                start, used, before, number = position, 0, before + used, number + 1
            used += length
        if start < len(rows):
            yield rows[start:]


def order_epoch(source_index: npt.NDArray[np.integer], weights: Sequence[float], seed: int, epoch: int) -> RowNumbers:
    """The rows of an epoch in random order. Weight 2 takes each row twice, weight 0.5 each half every other epoch."""
    parts = []
    for number, weight in enumerate(weights):
        rows = np.flatnonzero(source_index == number).astype(np.int64)
        np.random.default_rng((seed, number)).shuffle(rows)
        first, last = round(epoch * weight * len(rows)), round((epoch + 1) * weight * len(rows))
        parts.append(rows[np.arange(first, last) % max(len(rows), 1)] if len(rows) else rows)
    order = np.concatenate(parts)
    np.random.default_rng((seed, epoch, len(weights))).shuffle(order)
    return order


def split_global_batches(
    order: RowNumbers, lengths: RowLengths, *, examples: int | None = None, tokens: int | None = None
) -> Iterator[RowNumbers]:
    """Consecutive pieces of the order: of `examples` each, or as many as fit into `tokens` real tokens.

    The last piece of an epoch may be smaller; no row is left out. A row longer than the budget is a batch of its own.
    """
    if examples is not None:
        for start in range(0, len(order), examples):
            yield order[start : start + examples]
        return
    assert tokens is not None
    start, used = 0, 0
    for position, row in enumerate(order):
        length = int(lengths[row])
        if used + length > tokens and position > start:
            yield order[start:position]
            start, used = position, 0
        used += length
    if start < len(order):
        yield order[start:]


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


@dataclass(frozen=True)
class CostModel:
    """Cost of a token, of a pair of tokens in attention, and of an example of any length; the default counts tokens."""

    source_token: float = 1.0
    target_token: float = 1.0
    source_pair: float = 0.0
    target_pair: float = 0.0
    cross_pair: float = 0.0
    example: float = 0.0

    def costs(self, source_lengths: npt.ArrayLike, target_lengths: npt.ArrayLike) -> npt.NDArray[np.float64]:
        source, target = np.asarray(source_lengths, np.float64), np.asarray(target_lengths, np.float64)
        tokens = self.source_token * source + self.target_token * target + self.example
        pairs = self.source_pair * source**2 + self.target_pair * target**2 + self.cross_pair * source * target
        return np.asarray(tokens + pairs, np.float64)

    def assign(
        self, rows: RowNumbers, source_lengths: RowLengths, target_lengths: RowLengths, ranks: int
    ) -> list[RowNumbers]:
        """The rows of each rank, in the order of the batch: the most expensive first, each to the least loaded rank."""
        costs = self.costs(source_lengths[rows], target_lengths[rows])
        assigned: list[list[int]] = [[] for _ in range(ranks)]
        loads = [0.0] * ranks
        for position in np.argsort(-costs, kind="stable").tolist():
            rank = loads.index(min(loads))
            assigned[rank].append(position)
            loads[rank] += float(costs[position])
        return [rows[np.array(sorted(positions), dtype=np.int64)] for positions in assigned]
