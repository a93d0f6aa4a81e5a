"""Checks of a guessed task on the rows themselves, and its labels.

`find_labels`: every value of the label column, grouped by spelling, with names for numbers.

    {"Yes", "yes", "no"} -> {"no": ["no"], "yes": ["Yes", "yes"]}      {"1", "1.0"} -> {"1": ["1", "1.0"]}
    0, 1, 2 next to a classes.txt of three lines -> its lines

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
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.data import BadRow, DataTable, read_file
from seqfit.errors import DataError, RecipeError, SeqfitError
from seqfit.inspection.columns import MISSING, profile_columns
from seqfit.recipe import SourceRecipe
from seqfit.tasks import TemplateRow, choose_template, column_text, columns_of, fold_word, render_list, render_template
from seqfit.units import format_share

_FEW_LABELS = 50
_ROWS = 20_000
_RECORD_STARTS = ("{'", '{"', "[{", "['", '["')
_FEWEST = 5  # texts with different targets; fewer may be mistakes of annotators
_DECIDED = 0.9  # the share of them in which the column decides
_MOST_LABELS = 1000
_CLASS_FILES = ("classes.txt", "labels.txt", "mapping.txt", "label_names.txt", "emotions.txt")
_DIGITS = re.compile(r"(\d+)")


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
    missing = Counter(target for _, target in pairs if target in MISSING)
    if missing and task["name"] not in ("classify", "multilabel", "regression"):
        written, count = missing.most_common(1)[0]
        found.append(
            f"in {format_share(count / len(pairs))} of the sampled rows the target is '{written}', which is how "
            "programs write a missing value: a model learns to answer it. Remove these rows unless they are meant"
        )
    for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        tabs = statistics.fmean("\t" in text for text in texts)
        records = statistics.fmean(text.startswith(_RECORD_STARTS) and text.endswith(("}", "]")) for text in texts)
        if tabs > 0.8:
            found.append(f"in {format_share(tabs)} of the sampled rows the {side} has tabs: it may be several columns")
        if records > 0.8 and not (side == "target" and task["name"] == "multilabel"):
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


def find_labels(
    task: Mapping[str, Any], tables: Mapping[str, DataTable], source: SourceRecipe, notes: list[str]
) -> list[str] | dict[str, list[str]]:
    """Every value of the label column; all rows are read, because files may be sorted by label."""
    if task.get("label_columns"):
        return [str(name) for name in task["label_columns"]]
    values: set[str] = set()
    for table in tables.values():
        for row in table.read():
            if not isinstance(row, BadRow):
                values.update(_labels_of(row, task))
            if len(values) > _MOST_LABELS:
                raise RecipeError(
                    f"{source.title}: {task['target']} has more than {_MOST_LABELS} different values",
                    f"A label column has at most {_MOST_LABELS} different values",
                    "Name the label column, task.target='{column}', or choose another task, such as --task generate",
                )
    missing = sorted(values & MISSING)
    if missing:
        notes.append(f"labels: {', '.join(missing)} is read as a missing label; such rows are left out")
    spellings = _group_spellings(values - {"", *missing})
    labels = list(spellings)
    names = _read_class_names(source, labels)
    if names:
        notes.append("labels: " + _listed(f"{label} ({name})" for name, label in zip(names, labels, strict=True)))
        return {name: spellings[label] for name, label in zip(names, labels, strict=True)}
    shown = {label: ", ".join(other for other in same if other != label) for label, same in spellings.items()}
    notes.append(
        f"{len(labels)} labels: "
        + _listed(f"{label} (also {others})" if others else label for label, others in shown.items())
    )
    return spellings if any(shown.values()) else labels


def _labels_of(row: TemplateRow, task: Mapping[str, Any]) -> list[str]:
    try:
        template = choose_template(task["target"], row)
        if task["name"] == "multilabel" or task.get("annotations"):
            texts = render_list(template, row, parse=True)
        else:
            texts = [render_template(template, row)]
    except (RecipeError, DataError):
        return []
    separator = task.get("label_separator")
    parts = [part for text in texts for part in (text.split(separator) if separator else [text])]
    return [part.strip() for part in parts]


def _listed(items: Any, most: int = 20) -> str:
    names = list(items)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _group_spellings(values: set[str]) -> dict[str, list[str]]:
    """{'Yes', 'yes', 'no'} -> {'no': ['no'], 'yes': ['Yes', 'yes']}: values that differ only in case are one label."""
    groups: dict[str, list[str]] = {}
    for value in _in_order(values):
        is_whole = re.fullmatch(r"-?\d+\.0+", value) is not None  # 1 and 1.0 are one label
        groups.setdefault(value.partition(".")[0] if is_whole else fold_word(value), []).append(value)
    # The spelling in lower case (the last one) names a label; for numbers it is the shortest.
    return {min(same, key=len) if same[0][-1:].isdecimal() else max(same): same for same in groups.values()}


def _in_order(values: set[str]) -> list[str]:
    """Numbers by size, words alphabetically, with numbers inside them by size."""

    def split_numbers(text: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(text)]

    try:
        return sorted(values, key=lambda value: (float(value), value))
    except ValueError:
        return sorted(values, key=lambda value: (split_numbers(value.casefold()), value))


def _read_class_names(source: SourceRecipe, labels: list[str]) -> list[str]:
    """Names of numbered classes, if a file next to the data lists as many: one per line, or '3<tab>joy'."""
    path = Path(source.path or "").expanduser()
    folder = path if path.is_dir() else path.parent
    if not labels or not all(label.isdecimal() for label in labels):
        return []
    for name in _CLASS_FILES:
        if not (folder / name).is_file():
            continue
        lines = [text for line in read_file(folder / name) if (text := str(line).strip())]
        numbered = dict(line.split("\t")[:2] for line in lines if line.count("\t"))
        if set(labels) <= set(numbered):
            return [numbered[label] for label in labels]
        if len(lines) == len(labels) and not numbered:
            return lines
    return []
