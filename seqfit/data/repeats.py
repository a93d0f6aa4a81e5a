"""Rows that occur twice: in one split, or in train and an evaluation split. Hashes come in, counts go out.

The one idea: 24 bytes stand for a row, so a million rows take 24 MB whatever their texts.

    train       (a, 1) (a, 1) (a, 2) (b, 3)      same pair: 1 row     sources with several targets: 1 (a)
    validation  (b, 9) (c, 4)                    same source as in train: 1 (b)
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
NO_GROUP = np.uint64(0)


@dataclass(frozen=True)
class RowHashes:
    """One number per row for its source, its source and target, and its group (0: it has none)."""

    source: Hashes
    pair: Hashes
    group: Hashes


def hash_text(*parts: str) -> int:
    """64 bits: among a million rows, two different ones collide with a chance of 3 in 100 million."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\x00")
    return int.from_bytes(digest.digest(), "little")


class RowHasher:
    """Takes rows one by one, however many there are."""

    def __init__(self) -> None:
        self._columns = (array("Q"), array("Q"), array("Q"))

    def add(self, source: str, target: str, group: str | None) -> None:
        """The next row."""
        hashes = (hash_text(source), hash_text(source, target), hash_text(group) if group else int(NO_GROUP))
        for column, number in zip(self._columns, hashes, strict=True):
            column.append(number)

    def finish(self) -> RowHashes:
        """The hashes of all rows."""
        return RowHashes(*(np.array(column, dtype=np.uint64) for column in self._columns))


def hash_rows(rows: Iterable[tuple[str, str, str | None]]) -> RowHashes:
    """The hashes of rows of (source, target, group)."""
    hasher = RowHasher()
    for row in rows:
        hasher.add(*row)
    return hasher.finish()


def find_same_pairs(rows: RowHashes) -> npt.NDArray[np.intp]:
    """Rows whose source and target have occurred before."""
    _, first = np.unique(rows.pair, return_index=True)
    return np.setdiff1d(np.arange(len(rows.pair)), first)


def count_several_targets(rows: RowHashes) -> int:
    """Sources that occur with more than one target."""
    _, first = np.unique(rows.pair, return_index=True)
    _, targets = np.unique(rows.source[first], return_counts=True)
    return int((targets > 1).sum())


def find_shared_sources(rows: RowHashes, train: RowHashes) -> npt.NDArray[np.intp]:
    """Rows whose source also occurs in train."""
    return np.flatnonzero(np.isin(rows.source, train.source))


def find_shared_groups(rows: RowHashes, train: RowHashes) -> npt.NDArray[np.intp]:
    """Rows whose group also occurs in train."""
    return np.flatnonzero((rows.group != NO_GROUP) & np.isin(rows.group, train.group))
