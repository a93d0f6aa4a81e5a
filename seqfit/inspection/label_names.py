"""The labels of a data set: every value of the label column, grouped by spelling, with names for numbers.

{"Yes", "yes", "no"} -> {"no": ["no"], "yes": ["Yes", "yes"]}      {"1", "1.0"} -> {"1": ["1", "1.0"]}
0, 1, 2 next to a classes.txt of three lines -> its lines
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqfit.data import BadRow, DataTable, read_file
from seqfit.errors import DataError, RecipeError
from seqfit.inspection.columns import MISSING
from seqfit.recipe import SourceRecipe
from seqfit.tasks import TemplateRow, choose_template, fold_word, render_list, render_template

_MOST_LABELS = 1000
_CLASS_FILES = ("classes.txt", "labels.txt", "mapping.txt", "label_names.txt", "emotions.txt")
_DIGITS = re.compile(r"(\d+)")


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
            texts = render_list(template, row)
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
