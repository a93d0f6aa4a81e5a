"""One pass over a table that keeps a few numbers per row.

In: a table and what to keep. Out: `RowIndex`, arrays of 8 to 13 bytes per row, on which splits are cut and rows are
chosen; the rows themselves are not kept, so a million rows of any length take 13 MB at most.

    rows                                       groups            listed   values
    {"id": "7", "context": "A", "label": "x"}  hash("A")         -1       0
    {"id": "8", "context": "A", "label": "y"}  hash("A")         -1       1
    {"id": "9", "context": "B", "label": "x"}  hash("B")         2        0        (9 is in the list of test ids)

A row that can't be read or has no source is a group of its own, so that such rows spread over all splits; they are left
out and counted where rows are rendered.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqfit.data.progress import Progress, ReadingProgress
from seqfit.data.rows import BadRow, Row
from seqfit.data.tables import Table
from seqfit.errors import DataError, RowError, SeqfitError, complain, did_you_mean
from seqfit.recipe.schema import SPLITS

UNLISTED = -1
NO_VALUE = -1  # of a row that can't be read


@dataclass(frozen=True)
class RowIndex:
    """What is kept of each row."""

    groups: NDArray[np.uint64]  # hash of seed and group
    listed: NDArray[np.int8]  # index into SPLITS, UNLISTED where no list has the row's id; empty without lists
    values: NDArray[np.int32]  # which of value_names the row has in the balanced column; empty without one
    value_names: list[str]

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class Indexer:
    """Builds the index of a source's tables."""

    title: str
    seed: int
    group: str | None
    group_of: Callable[[Row], str]
    ids: Mapping[str, frozenset[str]]
    balance: str | None
    progress: Progress | None = None

    def build(self, table: Table) -> RowIndex:
        """Reads the table once."""
        groups, listed, values = bytearray(), array("b"), array("i")
        numbers: dict[str, int] = {}
        salted = hashlib.blake2b(digest_size=8, key=str(self.seed).encode())
        shown = ReadingProgress(self.progress, f"{self.title}: splitting", table.files)
        number = 0
        for number, row in enumerate(table.read(), 1):
            # surrogatepass: broken text is counted where the row is rendered
            hashed = salted.copy()
            hashed.update(self._group(row, number).encode("utf-8", "surrogatepass"))
            groups += hashed.digest()
            if self.ids:
                listed.append(self._list_of(row, number))
            if self.balance is not None:
                values.append(self._value(row, number, numbers))
            shown.report(number)
        shown.end(number)
        return RowIndex(
            np.frombuffer(groups, dtype="<u8"),
            np.frombuffer(listed, dtype=np.int8),
            np.frombuffer(values, dtype=np.int32),
            list(numbers),
        )

    def _group(self, row: Row, number: int) -> str:
        if isinstance(row, BadRow):
            return f"\0row {number}"
        if self.group is not None:
            return str(self._column(row, number, self.group, "data.group"))
        try:
            return self.group_of(row)
        except RowError:
            return f"\0row {number}"
        except SeqfitError as error:
            raise type(error)(f"{self.title}, row {number}: {error}") from error

    def _list_of(self, row: Row, number: int) -> int:
        if isinstance(row, BadRow):
            return UNLISTED
        row_id = str(self._column(row, number, "id", "data.ids"))
        return next((SPLITS.index(split) for split, ids in self.ids.items() if row_id in ids), UNLISTED)

    def _value(self, row: Row, number: int, numbers: dict[str, int]) -> int:
        if self.balance is None or isinstance(row, BadRow):
            return NO_VALUE
        value = str(self._column(row, number, self.balance, "data.balance"))
        return numbers.setdefault(value, len(numbers))

    def _column(self, row: Row, number: int, column: str, field: str) -> object:
        if column in row:
            return row[column]
        raise DataError(
            complain(
                f"{self.title}, row {number}: {field} needs the column '{column}'",
                f"The row has {', '.join(row)}",
                "Give every row an id" if column == "id" else f"Set {field} to a column that every row has",
            )
            + did_you_mean(column, row)
        )
