"""What the labels of a data set say about the task: how often each target occurs comes in, sentences go out.

    classify, {"ham": 930, "spam": 70}   ->  "930 of 1,000 rows (93.0%) have the label 'ham': ..."
    classify, {"0.25": 3, "0.5": 4, ...} ->  "all 43 labels are numbers with decimals, such as 0.25: ..."

Each of them has trained in silence what nobody wanted: a column of scores as classes, a file with one class only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seqfit.recipe.schema import LABEL_JOINT, TaskRecipe
from seqfit.tasks.number import read_score
from seqfit.units import format_share

_MOST_SHARE = 0.9  # of the rows in one class
_ROWS_PER_CLASS = 10
_MOST_NAMED = 5


def find_label_problems(task: TaskRecipe, targets: Mapping[str, int]) -> list[str]:
    """Of the training rows of a task with labels or scores; `targets` says how often each target text occurs."""
    rows = sum(targets.values())
    if rows == 0:
        return []
    match task.name:
        case "classify":
            return list(_find_class_problems(list(task.label_values), targets, rows))
        case "multilabel":
            return list(_find_multilabel_problems(task, targets, rows))
        case "regression":
            return list(_find_score_problems(targets, rows))
    return []


def _find_class_problems(labels: Sequence[str], counts: Mapping[str, int], rows: int) -> Iterator[str]:
    yield from _find_count_problems(labels, counts, rows)
    most, count = max(counts.items(), key=lambda item: item[1])
    if len(counts) == 1:
        yield f"all {rows:,} rows have the label '{most}': there is nothing to learn. Check task.target and task.labels"
    elif count >= _MOST_SHARE * rows:
        yield (
            f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the label '{most}': a model that always "
            "answers so is as often right. Look at macro_f1 beside the accuracy"
        )
    numbers = [label for label in counts if read_score(label) is not None]
    decimals = [label for label in numbers if not (read_score(label) or 0.0).is_integer()]
    if len(numbers) == len(counts) and decimals:
        yield (
            f"all {len(counts):,} labels are numbers, with decimals such as {decimals[0]}: if they are scores, set "
            "task.name=regression and remove task.labels"
        )


def _find_multilabel_problems(task: TaskRecipe, targets: Mapping[str, int], rows: int) -> Iterator[str]:
    none = task.no_label or ""
    counts: Counter[str] = Counter()
    for text, count in targets.items():
        counts.update(dict.fromkeys([] if text == none else text.split(LABEL_JOINT), count))
    yield from _find_count_problems(list(task.label_values), counts, rows)
    unlabelled = targets.get(none, 0)
    if unlabelled:
        yield f"{unlabelled:,} of {rows:,} rows ({format_share(unlabelled / rows)}) have no label, and are learnt so"
    for label, count in counts.items():
        if count >= _MOST_SHARE * rows:
            yield (
                f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the label '{label}': a model that "
                "always gives it is as often right"
            )


def _find_score_problems(targets: Mapping[str, int], rows: int) -> Iterator[str]:
    most, count = max(targets.items(), key=lambda item: item[1])
    if len(targets) == 1:
        yield f"all {rows:,} rows have the score {most}: there is nothing to learn. Check task.target"
    elif count >= _MOST_SHARE * rows:
        yield f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the score {most}"
    elif len(targets) == 2:
        yield f"there are two scores only, {' and '.join(sorted(targets))}: if they are classes, set task.name=classify"


def _find_count_problems(labels: Sequence[str], counts: Mapping[str, int], rows: int) -> Iterator[str]:
    if len(counts) * _ROWS_PER_CLASS > rows:
        yield (
            f"{len(counts):,} labels in {rows:,} rows, more than one for {_ROWS_PER_CLASS} rows: few of them can be "
            "learnt. Scores are task.name=regression, free texts task.name=generate"
        )
    unseen = [label for label in labels if label not in counts]
    if unseen and counts:
        named = ", ".join(unseen[:_MOST_NAMED]) + (", ..." if len(unseen) > _MOST_NAMED else "")
        yield f"{len(unseen):,} of {len(labels):,} labels have no row: {named}"
