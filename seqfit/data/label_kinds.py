"""What the values of a label column mean: classes, scores, sets of labels, or several annotators' labels.

"2.4", "0.0", "3.8", ...                  scores: regression
"4,27", "27", "4", ...                    sets: multilabel, separated by ','
["new", "pin"], ["how_long"], ...         sets: multilabel
["none", "none", "weak"], ...             several annotators, because values repeat inside a list
1 ... 100                                 scores or classes: in doubt
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqfit.data.rows import Row
from seqfit.errors import SeqfitError
from seqfit.tasks.lists import parse_list
from seqfit.tasks.template import columns_of, render_list, render_template

_SEPARATORS = (",", ";", "|")
_NUMBERED = re.compile(r"\d+(\.0+)?")
_LETTERED = re.compile(r"\(?[A-Za-z][).:]?")
_MOST_NUMBERED_CLASSES = 20  # more whole numbers than these are rather a scale


@dataclass(frozen=True)
class LabelKind:
    """The task that the labels mean, where that is another one, and the fields that it needs."""

    task: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    doubt: str | None = None


def find_label_kind(task: str, target: str, rows: Sequence[Row]) -> LabelKind:
    """What the target's values say about the task, for tasks with labels."""
    if task not in ("classify", "multilabel", "regression") or len(columns_of(target)) != 1:
        return LabelKind()
    cells = [cell for row in rows if (cell := _cell(target, row))]
    lists = [cell for cell in cells if isinstance(cell, list)]
    if len(lists) > len(cells) / 2:
        return _kind_of_lists(task, lists)
    texts = [cell for cell in cells if isinstance(cell, str)]
    numbers = [number for text in texts if (number := _number(text)) is not None]
    if task == "regression" or not texts:
        return LabelKind()
    separators = (*_SEPARATORS, " ") if task == "multilabel" else _SEPARATORS
    if (kind := _kind_of_texts(texts, separators)) is not None:
        return kind
    if len(numbers) > 0.98 * len(texts):
        if any(not number.is_integer() for number in numbers) and len(set(numbers)) > 2:
            why = f"{len(set(numbers))} different numbers from {min(numbers):g} to {max(numbers):g} are no classes"
            return LabelKind("regression", why=why)
        if len(set(numbers)) > _MOST_NUMBERED_CLASSES and task == "classify":
            return LabelKind(doubt=f"{target} has {len(set(numbers))} different numbers, classes or scores")
    return LabelKind()


def find_list_kind(target: str, rows: Sequence[Row]) -> LabelKind:
    """Lists as the target of a text: alternatives, of which one is enough, or parts that belong together."""
    if len(columns_of(target)) != 1:
        return LabelKind()
    lists = [cell for row in rows if isinstance(cell := _cell(target, row), list)]
    if sum(len(cell) > 1 for cell in lists) < max(1, len(rows) / 20):
        return LabelKind()
    doubt = f"{target} holds lists: alternatives (the first is learnt, all are references) or parts of one text"
    return LabelKind(more={"references": [target]}, doubt=doubt)


def find_written_lists(target: str, samples: Mapping[str, Sequence[Row]]) -> LabelKind:
    """Lists written as text in some splits and not in train: several references of one target."""
    if len(columns_of(target)) != 1:
        return LabelKind()
    shares = {split: _share_of_lists(target, rows) for split, rows in samples.items()}
    found = [split for split, share in shares.items() if share > 0.9]
    if not found or len(found) == len(shares):
        return LabelKind()
    why = f"{target} is a list of texts in {', '.join(found)}: each of them is a reference"
    return LabelKind(more={"references": [target]}, why=why)


def _share_of_lists(target: str, rows: Sequence[Row]) -> float:
    texts = [cell for row in rows if isinstance(cell := _cell(target, row), str)]
    lists = [items for text in texts if text.startswith(("['", '["')) and (items := parse_list(text))]
    return len(lists) / len(texts) if texts else 0.0


def find_choice_base(target: str, choices: str | list[str], rows: Sequence[Row]) -> LabelKind:
    """How the target names the right choice: by number from 0 or from 1, by letter, or by its text."""
    entries: list[tuple[str, list[str]]] = []
    for row in rows:
        try:
            texts = (
                render_list(choices, row) if isinstance(choices, str) else [render_template(c, row) for c in choices]
            )
            entries.append((render_template(target, row).strip(), [text.strip() for text in texts]))
        except SeqfitError:
            continue
    entries = [(entry, texts) for entry, texts in entries if entry and texts]
    by_text = sum(entry in texts for entry, texts in entries)
    numbers = [(int(float(entry)), len(texts)) for entry, texts in entries if _NUMBERED.fullmatch(entry)]
    letters = sum(_LETTERED.fullmatch(entry) is not None for entry, _ in entries)
    if numbers and len(numbers) > 0.9 * len(entries) and by_text < 0.9 * len(entries):
        if any(number == 0 for number, _ in numbers):
            return LabelKind(more={"choice_base": 0}, why="the right choice is numbered from 0")
        if any(number == count for number, count in numbers):
            return LabelKind(more={"choice_base": 1}, why="the right choice is numbered from 1")
        return LabelKind(more={"choice_base": 0}, doubt="the choices may be numbered from 0 or from 1")
    if letters > 0.9 * len(entries) and by_text < 0.9 * len(entries):
        return LabelKind(more={"choice_base": "a"})
    return LabelKind(more={"choice_base": "text"} if by_text > 0.9 * len(entries) else {})


def _kind_of_lists(task: str, lists: list[list[str]]) -> LabelKind:
    several = [cell for cell in lists if len(cell) > 1]
    if not several:
        return LabelKind()
    repeating = sum(len(set(cell)) < len(cell) for cell in several)
    if repeating > 0.2 * len(several):
        numbers = all(_number(item) is not None for cell in lists for item in cell)
        rule = "mean" if task == "regression" and numbers else "majority"
        return LabelKind(
            None if task != "multilabel" else "classify",
            {"annotations": rule},
            f"lists of several annotators' labels: the {rule} counts"
            + ("" if rule == "mean" else ", of a tie the first"),
        )
    return LabelKind("multilabel", why="each row has a list of labels")


def _kind_of_texts(texts: list[str], separators: Sequence[str]) -> LabelKind | None:
    """Sets in one text: parts that occur in many combinations. 0,5 and 3,25 are numbers."""
    whole = Counter(texts)
    for separator in separators:
        split = [[part.strip() for part in text.split(separator)] for text in texts]
        several = sum(len(parts) > 1 for parts in split)
        parts = Counter(part for found in split for part in found if part)
        short = all(len(part) <= 40 for part in parts)
        if several >= max(2, 0.01 * len(texts)) and short and len(parts) < len(whole) and len(parts) <= 200:
            alone = sum(len(found) == 1 for found in split)
            decimals = not alone and max(map(len, split)) == 2 and all(part.isdecimal() for part in parts)
            if not decimals:
                return LabelKind(
                    "multilabel", {"label_separator": separator}, f"labels are joined by '{separator}' in some rows"
                )
    return None


def _cell(target: str, row: Row) -> list[str] | str | None:
    """A list column's items, or the text; None where it is empty or missing."""
    try:
        found = render_list(target, row)
        text = render_template(target, row).strip()
    except SeqfitError:
        return None
    is_list = isinstance(_plain(target, row), list)
    return found if is_list and found else text or None


def _plain(target: str, row: Row) -> Any:
    """The value that a template of one column stands for."""
    value: Any = row
    path = columns_of(target)[0]
    if path in row:
        return row[path]
    for key in path.split("."):
        if isinstance(value, list):
            return value
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(text: str) -> float | None:
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None
