from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from seqfit.data.file_tables import DataTable
from seqfit.data.rows import BadRow
from seqfit.data.splits import NO_VALUE, UNLISTED, Indexer
from seqfit.errors import DataError, RowError

ROWS = [
    {"id": "7", "context": "A", "label": "x"},
    {"id": 8, "context": "A", "label": "y"},
    {"id": "9", "context": "B", "label": "x"},
]


def _table(rows: list[dict[str, Any]]) -> DataTable:
    return DataTable("rows", (), lambda: iter(rows))


INDEXER = Indexer("mine", 0, None, lambda row: str(row["context"]), {"test": frozenset({"8"})}, "label")


def test_equal_groups_have_equal_hashes_and_ids_are_looked_up() -> None:
    index = INDEXER.build(_table(ROWS))
    assert index.groups[0] == index.groups[1] != index.groups[2]
    assert index.listed.tolist() == [UNLISTED, 2, UNLISTED]
    assert index.values.tolist() == [0, 1, 0]
    assert index.value_names == ["x", "y"]


def test_another_seed_gives_other_hashes() -> None:
    other = dataclasses.replace(INDEXER, seed=1).build(_table(ROWS))
    assert not np.any(other.groups == INDEXER.build(_table(ROWS)).groups)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("balance", "lable", r"mine, row 1: data\.balance needs the column 'lable'.*Did you mean 'label'"),
        ("group", "document", r"data\.group needs the column 'document'"),
    ],
)
def test_a_missing_column_is_named_with_its_field(field: str, value: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataclasses.replace(INDEXER, **{field: value}).build(_table(ROWS))  # type: ignore[arg-type]


def test_rows_without_ids_cannot_be_listed() -> None:
    with pytest.raises(DataError, match=r"row 1: data\.ids needs the column 'id'.*Add an id to every row"):
        INDEXER.build(_table([{"context": "A"}]))


def test_an_error_of_the_task_names_the_row() -> None:
    def fail(row: Any) -> str:
        raise DataError("no context")

    with pytest.raises(DataError, match="mine, row 1: no context"):
        dataclasses.replace(INDEXER, group_of=fail).build(_table(ROWS))


def test_rows_that_cannot_be_used_are_groups_of_their_own() -> None:
    def group_of(row: Any) -> str:
        if not row["context"]:
            raise RowError("no context", cause="empty source")
        return str(row["context"])

    rows = [*ROWS, BadRow("broken", "line 4"), {"id": "10", "context": "", "label": "x"}, BadRow("broken", "line 6")]
    index = dataclasses.replace(INDEXER, group_of=group_of).build(_table(rows))
    assert len(set(index.groups.tolist())) == 5
    assert index.listed.tolist() == [UNLISTED, 2, UNLISTED, UNLISTED, UNLISTED, UNLISTED]
    assert index.values.tolist() == [0, 1, 0, NO_VALUE, 0, NO_VALUE]


def test_without_lists_and_balance_only_hashes_are_kept() -> None:
    index = dataclasses.replace(INDEXER, ids={}, balance=None).build(_table(ROWS))
    assert (index.groups.nbytes, index.listed.nbytes, index.values.nbytes) == (24, 0, 0)
