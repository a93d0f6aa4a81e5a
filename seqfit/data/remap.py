"""Tokenized rows for a model whose vocabulary was trimmed: ids are exchanged as they are read.

In: what `prepare_data` gave, and an array old id -> new id. Out: the same data in new ids. The one idea: the files on
disk keep the full tokenizer's ids, so every trimming of one data set shares one entry of the cache.

    remap [0 1 2 2 3]      token_ids(0) was [4 1], is [3 1]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqfit.data.tokenized import Ids, PreparedData, TokenizedSplit


class RemappedSplit(TokenizedSplit):
    """A split that answers in new ids; texts, lengths and everything else are the split's own."""

    def __init__(self, split: TokenizedSplit, remap: Ids) -> None:
        super().__init__(split._folders, split.titles, split.weights)
        self._split = split
        self._remap = remap

    def __reduce__(self) -> tuple[type[RemappedSplit], tuple[Any, ...]]:
        return RemappedSplit, (self._split, self._remap)

    def token_ids(self, row: int) -> tuple[Ids, Ids]:
        """Source and target as new ids: copies, not views."""
        source, target = self._split.token_ids(row)
        return self._remap[source], self._remap[target]

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each new id occurs."""
        old_counts = self._split.token_counts(len(self._remap))
        counts = np.zeros(vocabulary, dtype=np.int64)
        np.add.at(counts, self._remap[old_counts > 0], old_counts[old_counts > 0])
        return counts


def count_words(data: PreparedData, vocabulary: int) -> NDArray[np.int64]:
    """How often each of `vocabulary` ids occurs in all splits together."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for split in data.splits.values():
        counts += split.token_counts(vocabulary)
    return counts


def remap_data(data: PreparedData, remap: Ids) -> PreparedData:
    """All splits in new ids."""
    return replace(data, splits={name: RemappedSplit(split, remap) for name, split in data.splits.items()})
