"""A second look at a reading, on the rows themselves: a column that is missing, and what no data looks like.

A column that was left out, and decides what is right: the same text with another value has another target.

In: a guessed task and the tables. Out: the column's name, or None. A tweet that stands in the data once for anger and
once for fear has two scores, and only the column that names the emotion tells which:

    text           emotion   score         rows with equal text and different scores: 1 and 2
    I am shaking   anger     0.2           they differ in emotion, too -> 'emotion'
    I am shaking   fear      0.9

`find_suspicions` warns where the label or the target stands in the source, or a side holds tabs or records as text.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqfit.data.rows import BadRow, DataRow
from seqfit.data.tables import DataTable
from seqfit.errors import DataError, RecipeError, SeqfitError
from seqfit.inspection.columns import profile_columns
from seqfit.tasks.template import choose_template, column_text, columns_of, render_template
from seqfit.units import format_share

_FEW_LABELS = 50
_ROWS = 20_000
_FEWEST = 5  # texts with different targets: fewer are mistakes of annotators
_DECIDED = 0.9  # of them: a column that differs wherever the target does


def find_deciding_column(task: Mapping[str, Any], tables: Mapping[str, DataTable]) -> str | None:
    """Of tasks with labels and scores, where texts repeat with different targets."""
    source, target = task.get("source"), task.get("target")
    if task["name"] not in ("classify", "regression") or not isinstance(source, str) or not isinstance(target, str):
        return None
    read = itertools.chain.from_iterable(table.read() for table in tables.values())
    rows = [row for row in itertools.islice(read, _ROWS) if not isinstance(row, BadRow)]
    by_text: dict[str, list[DataRow]] = {}
    for row in rows:
        if (text := _render_side(source, row)) is not None:
            by_text.setdefault(text, []).append(row)
    repeated = [group for group in by_text.values() if len(group) > 1]
    in_conflict = [group for group in repeated if len({_render_side(target, row) for row in group}) > 1]
    if len(in_conflict) < _FEWEST:
        return None
    used = {*columns_of(source), *columns_of(target)}
    for column in profile_columns(rows[:1000]):
        if column.path not in used and column.not_text is None and column.has_few_values:
            decided = sum(_decides(column.path, target, group) for group in in_conflict)
            if decided > _DECIDED * len(in_conflict):
                return column.path
    return None


def _decides(column: str, target: str, group: list[DataRow]) -> bool:
    """Whether rows of one text with the same value have the same target."""
    targets: dict[str, set[str | None]] = {}
    for row in group:
        targets.setdefault(column_text(column, row), set()).add(_render_side(target, row))
    return len(targets) > 1 and all(len(found) == 1 for found in targets.values())


def _render_side(template: str, row: DataRow) -> str | None:
    try:
        return render_template(template, row)
    except SeqfitError:
        return None


def find_suspicions(task: Mapping[str, Any], rows: Sequence[DataRow]) -> list[str]:
    """What no data that was read rightly looks like: whoever reads on should look first."""
    pairs: list[tuple[str, str]] = []
    for row in rows:
        with contextlib.suppress(RecipeError, DataError, KeyError):
            sides = (render_template(choose_template(task[side], row), row) for side in ("source", "target"))
            source, target = (text.strip() for text in sides)
            pairs.append((source, target))
    if len(pairs) < 20:
        return []
    found = [_find_leak(pairs)] if task["name"] == "classify" else []
    copied = _share(len(target.split()) >= 8 and target in source for source, target in pairs)
    if copied > 0.5 and task["name"] not in ("classify", "multilabel", "regression"):
        found.append(f"the whole target stands in the source in {format_share(copied)} of the rows: a model copies it")
    for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        tabs, records = (_share(test(text) for text in texts) for test in (_has_tab, _is_record))
        if tabs > 0.8:
            found.append(f"the {side} has tabs in {format_share(tabs)} of the rows: it may be several columns")
        if records > 0.8:
            found.append(f"the {side} is a list or a record, written as text, in {format_share(records)} of the rows")
    return [f"warning: {sentence}" for sentence in found if sentence is not None]


def _share(found: Iterable[bool]) -> float:
    return statistics.fmean(found)


def _has_tab(text: str) -> bool:
    return "\t" in text


def _is_record(text: str) -> bool:
    return text.startswith(("{'", '{"', "[{", "['", '["')) and text.endswith(("}", "]"))


def _find_leak(pairs: Sequence[tuple[str, str]]) -> str | None:
    """Where the label stands in the text it is to be found from: by itself on a line, or far more often than others."""
    labels = {label for _, label in pairs if label}
    if not 1 < len(labels) <= _FEW_LABELS:
        return None
    own = sum(_stands_in(label, source) for source, label in pairs) / len(pairs)
    others = statistics.fmean(
        sum(_stands_in(other, source) for other in labels - {label}) / (len(labels) - 1) for source, label in pairs
    )
    if own < 0.5 or own < 3 * others:
        return None
    return (
        f"the label stands in its own text in {format_share(own)} of the rows looked at (other labels in "
        f"{format_share(others)}): a model reads it off. Remove it from the texts"
    )


def _stands_in(label: str, source: str) -> bool:
    """As a line, or as a word; a number only as a line, for numbers stand in many texts."""
    if label in (line.strip() for line in source.splitlines()):
        return "\n" in source
    return len(label) > 2 and re.search(rf"(?<!\w){re.escape(label)}(?!\w)", source, re.IGNORECASE) is not None
