"""From which probability on a label is given: the one that makes micro-F1 on some rows best.

In: the probabilities [rows, labels] and which labels apply. Out: a `Threshold`. The one idea: sorted by probability,
the first k of all pairs of row and label are given, so that one pass over k sees every threshold.

    probabilities  0.9 0.6 0.4 0.2    applies  yes yes no yes
    given          1   2   3   4      F1  0.5 0.8 0.67 0.86      all four: from 0.2 on, and the threshold lies below it

Between two probabilities it lies in the middle. Where one half is as good, it stays one half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEFAULT_THRESHOLD = 0.5


@dataclass(frozen=True)
class Threshold:
    """What was found, with micro-F1 (0 to 100) there and at one half."""

    value: float
    micro_f1: float
    micro_f1_at_half: float

    def __str__(self) -> str:
        return (
            f"a label is given from probability {self.value:.3f} on, which makes micro-F1 on these rows best: "
            f"{self.micro_f1:.2f}, and {self.micro_f1_at_half:.2f} from {DEFAULT_THRESHOLD} on"
        )


def find_threshold(probabilities: NDArray[np.floating], applies: NDArray[np.bool_]) -> Threshold | None:
    """The best one; None where no label applies to any row, so that every threshold is as good."""
    wanted = int(applies.sum())
    if wanted == 0:
        return None
    order = np.argsort(-probabilities, axis=None, kind="stable")
    ranked = probabilities.ravel()[order].astype(np.float64)
    hits = np.cumsum(applies.ravel()[order])
    given = np.arange(1, len(ranked) + 1)
    f1 = 200 * hits / (given + wanted)
    below = np.append(ranked[1:], max(0.0, 2 * ranked[-1] - 1))
    is_cut = ranked > below  # equal probabilities are given together
    between = (ranked + below) / 2
    best = f1[is_cut].max(initial=0.0)
    count = int((ranked > DEFAULT_THRESHOLD).sum())
    at_half = float(f1[count - 1]) if count else 0.0
    if at_half >= best:
        return Threshold(DEFAULT_THRESHOLD, at_half, at_half)
    middle = between[is_cut & (f1 == best)]
    return Threshold(float(middle[np.abs(middle - DEFAULT_THRESHOLD).argmin()]), float(best), at_half)
