"""What confidences are worth: their calibration, and the threshold above which a question is left unanswered.

Calibrated: of the answers with a confidence of about 0.8, 80% are right. The expected calibration error (ECE; Naeini et
al. 2015, Guo et al. 2017) is the mean distance of the two over 15 bins of equal width, weighted by their rows:

    confidence  0.9  0.9  0.6    right  yes  no  yes      bins  0.9: 50% right    0.6: 100% right
    ECE = 2/3 * |0.5 - 0.9| + 1/3 * |1 - 0.6| = 40.0 (in per cent)

`find_no_answer_threshold` is that of SQuAD's evaluate-v2.0 (--na-prob-file): a question whose probability of having no
answer is above the threshold gets the empty answer, and the best threshold is searched for EM and for F1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 15


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    low: float
    high: float
    rows: int
    confidence: float  # mean
    right: float  # share of the rows


@dataclass(frozen=True, slots=True)
class Calibration:
    ece: float  # in per cent
    bins: list[CalibrationBin]  # those with rows


@dataclass(frozen=True, slots=True)
class NoAnswerThreshold:
    threshold: float
    score: float  # in per cent, of all rows at this threshold


def measure_calibration(confidences: Sequence[float], is_right: Sequence[bool], bins: int = BINS) -> Calibration:
    """A bin contains its upper limit, the first one 0 as well."""
    given, right = np.asarray(confidences, dtype=np.float64), np.asarray(is_right, dtype=np.float64)
    place = np.clip(np.ceil(given * bins).astype(int) - 1, 0, bins - 1)
    found, error = [], 0.0
    for number in range(bins):
        inside = place == number
        rows = int(inside.sum())
        if rows:
            confidence, share = float(given[inside].mean()), float(right[inside].mean())
            found.append(CalibrationBin(number / bins, (number + 1) / bins, rows, confidence, share))
            error += rows * abs(confidence - share)
    return Calibration(100 * error / len(given) if len(given) else 0.0, found)


def find_no_answer_threshold(
    scores: Sequence[float], is_answered: Sequence[bool], has_answer: Sequence[bool], no_answer: Sequence[float]
) -> NoAnswerThreshold:
    """`scores`: EM or F1 of each row, 0 to 1; `is_answered`: the prediction is not empty; `no_answer`: probabilities.

    As the script does it: all questions unanswered first, then one more answered at a time, the surest ones first.
    """
    score = best = float(sum(not has for has in has_answer))
    threshold = 0.0
    for row in sorted(range(len(scores)), key=lambda row: no_answer[row]):
        score += scores[row] if has_answer[row] else -float(is_answered[row])
        if score > best:
            best, threshold = score, no_answer[row]
    return NoAnswerThreshold(threshold, 100.0 * best / len(scores))
