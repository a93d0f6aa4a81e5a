"""data.map: a user's function that changes every row as it is read, before splitting, rendering and `seqfit data`.

    def clean(row):                                          {"text": " Hi<br>", "label": 1}
        row["text"] = row["text"].replace("<br>", " ")   ->  {"text": " Hi ", "label": 1}
        return row                                           None: the row is left out, and counted

A function that fails on one of the first three rows is wrong, and an error at once; a later row on which it fails is
left out and counted like any row that can't be used (rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from seqfit.data.file_tables import DataTable
from seqfit.data.rows import BadRow, DataRow
from seqfit.errors import DataError, RowError
from seqfit.own_functions import OwnFunction, load_function, map_row

_FIELD = "data.map"
_TRIED = 3


def map_tables(tables: Mapping[str, DataTable], spec: str | None) -> dict[str, DataTable]:
    if spec is None:
        return dict(tables)
    own = load_function(spec, _FIELD)
    return {name: _map_table(table, own) for name, table in tables.items()}


def identify_map(spec: str) -> list[str]:
    """What decides its rows, whatever folder it is in."""
    own = load_function(spec, _FIELD)
    return [own.name, own.sha256]


def _map_table(table: DataTable, own: OwnFunction) -> DataTable:
    def read() -> Iterator[DataRow]:
        for number, row in enumerate(table.read(), 1):
            if isinstance(row, BadRow):
                yield row
                continue
            try:
                found = map_row(own, row)
            except RowError as error:
                if number <= _TRIED:
                    raise DataError(f"{table.name}, row {number}: {error}") from error
                yield BadRow(error.cause or "data.map failed", f"row {number}: {error}")
                continue
            yield BadRow(f"left out by {own.name}", f"{own.name} returned None") if found is None else found

    return replace(table, read=read)
