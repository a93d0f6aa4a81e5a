"""A column that was left out, and decides what is right: the same text with another value has another target.

In: a guessed task and the tables. Out: the column's name, or None. A tweet that stands in the data once for anger and
once for fear has two scores, and only the column that names the emotion tells which:

    text           emotion   score         rows with equal text and different scores: 1 and 2
    I am shaking   anger     0.2           they differ in emotion, too -> 'emotion'
    I am shaking   fear      0.9
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from seqfit.data.columns import profile_columns
from seqfit.data.rows import BadRow, Row
from seqfit.data.tables import Table
from seqfit.errors import SeqfitError
from seqfit.tasks.template import column_text, columns_of, render_template

_ROWS = 20_000
_FEWEST = 5  # texts with different targets: fewer are mistakes of annotators
_DECIDED = 0.9  # of them: a column that differs wherever the target does


def find_deciding_column(task: Mapping[str, Any], tables: Mapping[str, Table]) -> str | None:
    """Of tasks with labels and scores, where texts repeat with different targets."""
    source, target = task.get("source"), task.get("target")
    if task["name"] not in ("classify", "regression") or not isinstance(source, str) or not isinstance(target, str):
        return None
    read = itertools.chain.from_iterable(table.read() for table in tables.values())
    rows = [row for row in itertools.islice(read, _ROWS) if not isinstance(row, BadRow)]
    by_text: dict[str, list[Row]] = {}
    for row in rows:
        if (text := _render(source, row)) is not None:
            by_text.setdefault(text, []).append(row)
    repeated = [group for group in by_text.values() if len(group) > 1]
    in_conflict = [group for group in repeated if len({_render(target, row) for row in group}) > 1]
    if len(in_conflict) < _FEWEST:
        return None
    used = {*columns_of(source), *columns_of(target)}
    for column in profile_columns(rows[:1000]):
        if column.path not in used and column.not_text is None and column.has_few_values:
            decided = sum(_decides(column.path, target, group) for group in in_conflict)
            if decided > _DECIDED * len(in_conflict):
                return column.path
    return None


def _decides(column: str, target: str, group: list[Row]) -> bool:
    """Whether rows of one text with the same value have the same target."""
    targets: dict[str, set[str | None]] = {}
    for row in group:
        targets.setdefault(column_text(column, row), set()).add(_render(target, row))
    return len(targets) > 1 and all(len(found) == 1 for found in targets.values())


def _render(template: str, row: Row) -> str | None:
    try:
        return render_template(template, row)
    except SeqfitError:
        return None
