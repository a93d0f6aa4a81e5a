"""Multilabel classifiers: the probability above which a label is predicted, chosen on the rows of an evaluation.

In: probabilities, and which labels apply. Out: the threshold with the best micro-F1, and the texts that follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seqfit.data import TokenizedSplit
from seqfit.generation import DEFAULT_THRESHOLD, Generated, Generator


@dataclass(frozen=True)
class Threshold:
    """The threshold, with micro-F1 (0 to 100) there and at 0.5."""

    value: float
    micro_f1: float
    micro_f1_at_half: float

    def __str__(self) -> str:
        return (
            f"a label is predicted above probability {self.value:.3f}, which has the best micro-F1 on these rows: "
            f"{self.micro_f1:.2f} instead of {self.micro_f1_at_half:.2f} at {DEFAULT_THRESHOLD}"
        )


def find_threshold(probabilities: NDArray[np.floating], applies: NDArray[np.bool_]) -> Threshold | None:
    """The one with the best micro-F1; None if no label applies to any row, so that all are equally good.

    Sorted by probability, a threshold predicts the first k of all pairs of row and label, so one pass over k covers
    every threshold. It is in the middle between two probabilities. If 0.5 is as good, it stays 0.5.

        probabilities  0.9 0.6 0.4 0.2    applies  yes yes no yes
        predicted      1   2   3   4      F1  0.5 0.8 0.67 0.86      all four: the threshold is below 0.2
    """
    wanted = int(applies.sum())
    if wanted == 0:
        return None
    order = np.argsort(-probabilities, axis=None, kind="stable")
    ranked = probabilities.ravel()[order].astype(np.float64)
    hits = np.cumsum(applies.ravel()[order])
    predicted = np.arange(1, len(ranked) + 1)
    f1 = 200 * hits / (predicted + wanted)
    below = np.append(ranked[1:], max(0.0, 2 * ranked[-1] - 1))
    is_threshold = ranked > below  # equal probabilities are predicted together
    between = (ranked + below) / 2
    best = f1[is_threshold].max(initial=0.0)
    count = int((ranked > DEFAULT_THRESHOLD).sum())
    at_half = float(f1[count - 1]) if count else 0.0
    if at_half >= best:
        return Threshold(DEFAULT_THRESHOLD, at_half, at_half)
    middle = between[is_threshold & (f1 == best)]
    return Threshold(float(middle[np.abs(middle - DEFAULT_THRESHOLD).argmin()]), float(best), at_half)


def adjust_threshold(
    generator: Generator, split: TokenizedSplit, rows: NDArray[np.int64], generated: Generated
) -> tuple[Generated, Threshold | None]:
    """Texts with the labels above the threshold that is best on these rows; unchanged if there are no probabilities."""
    if generated.probabilities is None:
        return generated, None
    assert generator.head is not None
    applies = np.array([split.label(row) for row in rows.tolist()], dtype=np.bool_)
    found = find_threshold(np.array(generated.probabilities), applies)
    if found is None:
        return generated, None
    return replace(generated, texts=generator.head.write_labels(generated.probabilities, found.value)), found
