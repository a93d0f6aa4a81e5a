"""The columns of a table as a person would describe them: type, how many are filled, different values, examples.

In: rows and, where it is known, the task. Out: a `ColumnView` for each column. Nothing is guessed from it.

    rows {"id": "7", "tags": ["a"], "text": "Who?"}, {"id": "8", "tags": [], "text": None}; task.source "{text}"
    ->   id    whole number   2 of 2   2 different              7, 8
         tags  list of text   1 of 2   1 different              a
         text  text           1 of 2   1 different   source     Who?
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from seqfit.data.data_report import ColumnView
from seqfit.data.rows import BadRow, Row
from seqfit.recipe.schema import TaskRecipe
from seqfit.tasks.template import columns_of

LOOKED_AT_ROWS = 10_000  # of a table: types and fill settle long before
_EXAMPLES = 3
_EXAMPLE_CHARS = 60
_FORMS = {
    "whole number": re.compile(r"[-+]?\d+"),
    "number": re.compile(r"[-+]?(\d+[.,]\d*|[.,]?\d+)([eE][-+]?\d+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"),
    "link": re.compile(r"(https?://|www\.)\S+"),
    "true or false": re.compile(r"true|false", re.IGNORECASE),
}


def describe_columns(tables: Iterable[Iterable[Row]], task: TaskRecipe | None = None) -> tuple[ColumnView, ...]:
    """Every column that occurs in the first rows of the tables."""
    rows = [row for table in tables for row in itertools.islice(table, LOOKED_AT_ROWS) if not isinstance(row, BadRow)]
    used = {} if task is None else _list_uses(task)
    names = dict.fromkeys(name for row in rows for name in row)
    return tuple(_describe(name, [row.get(name) for row in rows], used) for name in names)


def show_value(value: Any, most: int = _EXAMPLE_CHARS) -> str:
    """On one line, the beginning of a long one."""
    if isinstance(value, list | tuple):
        text = ", ".join(show_value(item) for item in value)
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key}: {show_value(item)}" for key, item in value.items())
    else:
        text = "" if is_missing(value) else " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def is_missing(value: Any) -> bool:
    """None, NaN, no text but white space, an empty list or record."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str | list | tuple | Mapping) and not (value.strip() if isinstance(value, str) else value)


def _describe(name: str, values: list[Any], used: Mapping[str, str]) -> ColumnView:
    filled = [value for value in values if not is_missing(value)]
    different = dict.fromkeys(repr(value) for value in filled)
    examples: dict[str, None] = {}
    for value in filled:
        if len(examples) == _EXAMPLES:
            break
        examples[show_value(value)] = None
    return ColumnView(
        name=name,
        kind=_name_kind(filled),
        filled=len(filled),
        rows=len(values),
        different=len(different),
        used_as=used.get(name, ""),
        examples=tuple(examples),
    )


def _name_kind(filled: list[Any]) -> str:
    kinds = dict.fromkeys(_kind_of(value) for value in filled)
    if not kinds:
        return "empty"
    if list(kinds) == ["text"]:
        return _form_of([value for value in filled if isinstance(value, str)])
    if set(kinds) == {"number", "whole number"}:
        return "number"
    return " or ".join(kinds)


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int):
        return "whole number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, Mapping):
        return "record"
    if isinstance(value, list | tuple):
        inner = dict.fromkeys(_kind_of(item) for item in value if not is_missing(item))
        return f"list of {' or '.join(f'{kind}s' if kind != 'text' else kind for kind in inner) or 'nothing'}"
    return "text" if isinstance(value, str) else type(value).__name__


def _form_of(texts: list[str]) -> str:
    """What all texts are written like; a file of separated values has no other types than text."""
    for form, pattern in _FORMS.items():
        if all(pattern.fullmatch(text.strip()) for text in texts):
            return form
    return "text"


def _list_uses(task: TaskRecipe) -> dict[str, str]:
    """Column -> where a template names it: {'question': 'source', 'answers': 'target'}."""
    sides: dict[str, Any] = {
        "source": task.source,
        "choices": task.choices,
        "target": [task.target, *(task.label_columns or [])],
        "references": task.references,
        "language": [task.source_language, task.target_language],
    }
    uses: dict[str, list[str]] = {}
    for side, given in sides.items():
        for template in _flatten(given):
            is_column = side == "target" and template in (task.label_columns or [])
            for path in [template] if is_column else columns_of(template):
                for name in (path, path.split(".")[0]):
                    uses.setdefault(name, []).append(side)
    return {name: ", ".join(dict.fromkeys(found)) for name, found in uses.items()}


def _flatten(given: Any) -> list[str]:
    if isinstance(given, list):
        return [text for item in given for text in _flatten(item)]
    return [given] if isinstance(given, str) else []
