"""Checks of a guessed task on the rows themselves.

`find_deciding_column` finds a column that is missing from the source: equal texts have different targets, and the
column decides which. A tweet that is in the data once for anger and once for fear has two scores:

    text           emotion   score         rows 1 and 2 have the same text and different scores
    I am shaking   anger     0.2           they also differ in emotion -> 'emotion'
    I am shaking   fear      0.9

`find_suspicions` warns if the source contains the label or the target, or a side holds tabs or records as text.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.data import BadRow, DataTable
from seqfit.errors import DataError, RecipeError, SeqfitError
from seqfit.inspection.columns import profile_columns
from seqfit.tasks import TemplateRow, choose_template, column_text, columns_of, render_template
from seqfit.units import format_share

_FEW_LABELS = 50
_ROWS = 20_000
_RECORD_STARTS = ("{'", '{"', "[{", "['", '["')
_FEWEST = 5  # texts with different targets; fewer may be mistakes of annotators
_DECIDED = 0.9  # the share of them in which the column decides


def find_deciding_column(task: Mapping[str, Any], tables: Mapping[str, DataTable]) -> str | None:
    """For tasks with labels and scores, if texts repeat with different targets."""
    source, target = task.get("source"), task.get("target")
    if task["name"] not in ("classify", "regression") or not isinstance(source, str) or not isinstance(target, str):
        return None
    read = itertools.chain.from_iterable(table.read() for table in tables.values())
    rows = [row for row in itertools.islice(read, _ROWS) if not isinstance(row, BadRow)]
    by_text: dict[str, list[TemplateRow]] = {}
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


def _decides(column: str, target: str, group: list[TemplateRow]) -> bool:
    """Whether rows of one text with the same value have the same target."""
    targets: dict[str, set[str | None]] = {}
    for row in group:
        targets.setdefault(column_text(column, row), set()).add(_render_side(target, row))
    return len(targets) > 1 and all(len(found) == 1 for found in targets.values())


def _render_side(template: str, row: TemplateRow) -> str | None:
    try:
        return render_template(template, row)
    except SeqfitError:
        return None


def find_suspicions(task: Mapping[str, Any], rows: Sequence[TemplateRow]) -> list[str]:
    """Warnings about data that was probably not read as intended."""
    pairs: list[tuple[str, str]] = []
    for row in rows:
        with contextlib.suppress(RecipeError, DataError, KeyError):
            sides = (render_template(choose_template(task[side], row), row) for side in ("source", "target"))
            source, target = (text.strip() for text in sides)
            pairs.append((source, target))
    if len(pairs) < 20:
        return []
    found = [_find_leak(pairs)] if task["name"] == "classify" else []
    copied = statistics.fmean(len(target.split()) >= 8 and target in source for source, target in pairs)
    if copied > 0.5 and task["name"] not in ("classify", "multilabel", "regression"):
        found.append(
            f"in {format_share(copied)} of the sampled rows the source contains the whole target: a model can copy it"
        )
    for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        tabs = statistics.fmean("\t" in text for text in texts)
        records = statistics.fmean(text.startswith(_RECORD_STARTS) and text.endswith(("}", "]")) for text in texts)
        if tabs > 0.8:
            found.append(f"in {format_share(tabs)} of the sampled rows the {side} has tabs: it may be several columns")
        if records > 0.8:
            found.append(f"in {format_share(records)} of the sampled rows the {side} is a list or record as text")
    return [f"warning: {sentence}" for sentence in found if sentence is not None]


def _find_leak(pairs: Sequence[tuple[str, str]]) -> str | None:
    """If the source contains its own label: on a line of its own, or far more often than other labels."""
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
        f"in {format_share(own)} of the sampled rows the text contains its own label (other labels: "
        f"{format_share(others)}), so a model can read it off. Remove it from the texts"
    )


def _stands_in(label: str, source: str) -> bool:
    """As a line, or as a word; a number only as a line, because many texts contain numbers."""
    if label in (line.strip() for line in source.splitlines()):
        return "\n" in source
    return len(label) > 2 and re.search(rf"(?<!\w){re.escape(label)}(?!\w)", source, re.IGNORECASE) is not None
