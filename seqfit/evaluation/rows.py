"""Rows to predict: from the command line, a file, or standard input.

["question=Who?", "context=Ada did."]   -> [{"question": "Who?", "context": "Ada did."}]
a line '{"question": "Who?"}'           -> [{"question": "Who?"}]
a line 'Who?'                           -> ["Who?"]
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.data import read_file
from seqfit.errors import DataError
from seqfit.paths import require_file

PredictionRows = str | Mapping[str, Any]


def rows_from_fields(fields: Sequence[str]) -> list[PredictionRows]:
    wrong = [field for field in fields if "=" not in field]
    if wrong:
        raise DataError(
            f"'{wrong[0]}' is given", "A row is written as COLUMN=TEXT", "Write for example question='Who wrote it?'"
        )
    return [dict(field.split("=", 1) for field in fields)]


def rows_from_file(path: Path, named: Collection[str] = ()) -> Iterator[PredictionRows]:
    """Rows of a data file in any format, or lines of a text file; `named` columns decide whether there is a header."""
    return rows_from_lines(read_file(require_file(path, "--file"), named))


def rows_from_bytes(stream: Iterable[bytes]) -> Iterator[PredictionRows]:
    """Rows of standard input, which must be UTF-8, one by one."""
    return rows_from_lines(read_file(stream))


def rows_from_lines(lines: Iterable[PredictionRows]) -> Iterator[PredictionRows]:
    """A line that starts with { is a JSON object, another one a text; empty lines are left out, and rows stay."""
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            yield line
            continue
        text = line.strip("\r\n")
        if not text.strip():
            continue
        if not text.lstrip().startswith("{"):
            yield text
            continue
        try:
            yield json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"line {number}, column {error.colno}: {error.msg}",
                "A line that starts with { is read as a JSON object",
                'Write it as {"column": "text", ...}',
            ) from error
