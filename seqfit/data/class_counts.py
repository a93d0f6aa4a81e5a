"""How often each label occurs: targets and how many rows have them come in, counts in the task's order go out.

classify, labels [no, yes]    {"yes": 7, "no": 3}          ->  no 3, yes 7
multilabel                    {"joy": 2, "joy, fear": 1}   ->  joy 3, fear 1
regression                    {"0.5": 1, "4": 2, "5": 1}   ->  0.5–0.95 1, ..., 4.55–5 1      (ten ranges)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from seqfit.data.data_report import ClassCount
from seqfit.recipe.schema import TaskRecipe

COUNTED_TASKS = ("classify", "multilabel", "regression")
_RANGES = 10
_JOINED_BY = ", "  # labels in a target text


def count_classes(task: TaskRecipe, targets: Mapping[str, int]) -> tuple[ClassCount, ...]:
    """Labels with their rows; those that the recipe lists come in its order, whether they occur or not."""
    if task.name == "regression":
        return _count_ranges(targets)
    counts: Counter[str] = Counter(dict.fromkeys(task.label_values or task.label_columns or [], 0))
    for target, rows in targets.items():
        labels = [target] if task.name == "classify" else filter(None, map(str.strip, target.split(_JOINED_BY)))
        counts.update(dict.fromkeys(labels, rows))
    return tuple(ClassCount(label, count) for label, count in counts.items())


def _count_ranges(targets: Mapping[str, int]) -> tuple[ClassCount, ...]:
    numbers, rows = [], []
    for target, count in targets.items():
        try:
            numbers.append(float(target))
        except ValueError:  # the task refuses such rows; what it writes otherwise is not a number of ours
            continue
        rows.append(count)
    if not numbers:
        return ()
    counts, edges = np.histogram(numbers, bins=min(_RANGES, len(numbers)), weights=rows)
    return tuple(
        ClassCount(f"{low:.3g}–{high:.3g}", int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )
