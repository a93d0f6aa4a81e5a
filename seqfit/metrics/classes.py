"""Precision, recall and F1 of each class, and which class was taken for which.

    references  cat cat dog    predictions  cat dog bird

    class  rows  precision  recall  F1        confusion    cat  dog  (other)
    cat    2     100        50      66.7      cat          1    1    0
    dog    1     0          0       0         dog          0    0    1

A class that was never predicted has no precision, one without a row no recall; both are None and not 0. With several
labels per row there is no confusion matrix, because no label is taken for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seqfit.metrics.labels_and_numbers import fold_label, read_labels
from seqfit.metrics.scores import Pairs

OTHER = "(other)"  # texts that are no class
_MOST_CLASSES = 200  # of a confusion matrix


@dataclass(frozen=True, slots=True)
class ClassScores:
    label: str
    rows: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, slots=True)
class ClassReport:
    classes: list[ClassScores]
    confusion: list[list[int]] | None
    """A row for each class, a column for each class and one for all other texts."""


def score_classes(
    references: Sequence[Sequence[str]],
    predictions: Sequence[str],
    labels: Sequence[str] | None = None,
    no_label: str | None = None,
) -> ClassReport:
    """In the order of `labels`, by default of the references."""
    wanted, predicted = read_labels(Pairs(references, predictions, labels=labels, no_label=no_label))
    given = labels or sorted({text for row in references for text in row[:1]})
    names = {fold_label(label): label for label in given}
    rows = Counter(label for row in wanted for label in row)
    said = Counter(label for row in predicted for label in row)
    hits = Counter(label for a, b in zip(wanted, predicted, strict=True) for label in a & b)
    classes = [
        ClassScores(
            name,
            rows[label],
            _percent(hits[label], said[label]),
            _percent(hits[label], rows[label]),
            _percent(2 * hits[label], rows[label] + said[label]),
        )
        for label, name in names.items()
    ]
    if no_label is not None or len(names) > _MOST_CLASSES:
        return ClassReport(classes, None)
    place = {label: number for number, label in enumerate(names)}
    confusion = [[0] * (len(place) + 1) for _ in place]
    for a, b in zip(wanted, predicted, strict=True):
        (reference,), (prediction,) = a, b
        if reference in place:
            confusion[place[reference]][place.get(prediction, len(place))] += 1
    return ClassReport(classes, confusion)


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
