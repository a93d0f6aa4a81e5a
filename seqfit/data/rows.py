"""What a reader yields: a row, or word of one that can't be read.

A row that can't be read (too few fields, broken JSON, bytes of another encoding) is a `BadRow`: it keeps its number in
the table, so that splits and row numbers do not depend on it, and is left out and counted where rows are rendered.

    {"q": "Why?", "a": "Because."}     a row
    BadRow("fewer fields than columns", "line 7: 2 of 3 columns")     an empty row that says why
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


class BadRow(Row):
    """A row that could not be read: `cause` groups such rows in a count, `detail` says where and what."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__()
        self.cause = cause
        self.detail = detail
