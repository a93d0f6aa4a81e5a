"""The rows that a user asks a model about: on the command line, in a file, or on standard input.

["question=Who?", "context=Ada did."]   -> [{"question": "Who?", "context": "Ada did."}]
a line '{"question": "Who?"}'           -> [{"question": "Who?"}]
a line 'Who?'                           -> ["Who?"]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.data.sources import ENDINGS, ending, read_rows
from seqfit.errors import DataError, complain

Asked = str | Mapping[str, Any]


def rows_from_fields(fields: Sequence[str]) -> list[Asked]:
    """One row of COLUMN=TEXT words."""
    wrong = [field for field in fields if "=" not in field]
    if wrong:
        raise DataError(
            complain(f"'{wrong[0]}' is given", "a row is written as COLUMN=TEXT", "Write question='Who wrote it?'")
        )
    return [dict(field.split("=", 1) for field in fields)]


def rows_from_file(path: Path) -> list[Asked]:
    """Rows of a data file in any known format, or of a text file, one a line."""
    if ending(path) in ENDINGS:
        return list(read_rows(path))
    try:
        return rows_from_lines(path.read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            complain(f"'{path}' can't be read ({error})", "rows come from a text file in UTF-8", "Check the path")
        ) from error


def rows_from_lines(lines: Iterable[str]) -> list[Asked]:
    """A line that starts with { is a JSON object, any other is a text; empty lines are left out."""
    rows: list[Asked] = []
    for number, line in enumerate(lines, 1):
        text = line.strip("\r\n")
        if not text.strip():
            continue
        if not text.lstrip().startswith("{"):
            rows.append(text)
            continue
        try:
            rows.append(json.loads(text))
        except json.JSONDecodeError as error:
            raise DataError(
                complain(
                    f"line {number}, column {error.colno}: {error.msg}",
                    "a line that starts with { is read as a JSON object",
                    'Write it as {"column": "text", ...}',
                )
            ) from error
    return rows
