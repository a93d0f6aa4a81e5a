from __future__ import annotations

import numpy as np
import pytest

from seqfit.evaluation.threshold import find_threshold


def micro_f1(probabilities: np.ndarray, applies: np.ndarray, threshold: float) -> float:
    given = probabilities > threshold
    return float(200 * (given & applies).sum() / (given.sum() + applies.sum()))


@pytest.mark.parametrize("seed", range(8))
def test_no_other_threshold_is_better(seed: int) -> None:
    draw = np.random.default_rng(seed)
    applies = draw.random((40, 5)) < 0.2
    probabilities = np.clip(0.3 * applies + draw.random((40, 5)) * 0.6, 0, 1).round(2)
    found = find_threshold(probabilities, applies)
    assert found is not None
    assert found.micro_f1 == pytest.approx(micro_f1(probabilities, applies, found.value))
    assert found.micro_f1_at_half == pytest.approx(micro_f1(probabilities, applies, 0.5))
    best = max(micro_f1(probabilities, applies, value) for value in np.arange(0, 1, 0.005))
    assert found.micro_f1 == pytest.approx(best)


def test_between_two_probabilities_it_lies_in_the_middle() -> None:
    found = find_threshold(np.array([[0.4, 0.2], [0.3, 0.1]]), np.array([[True, False], [True, False]]))
    assert found is not None
    assert found.value == pytest.approx(0.25)
    assert "above probability 0.250" in str(found)
    assert "100.00 instead of 0.00 at 0.5" in str(found)


def test_one_half_stays_where_it_is_as_good() -> None:
    found = find_threshold(np.array([[0.9, 0.2]]), np.array([[True, False]]))
    assert found is not None
    assert found.value == 0.5


def test_all_may_be_given() -> None:
    found = find_threshold(np.array([[0.3, 0.2]]), np.array([[True, True]]))
    assert found is not None
    assert 0 <= found.value < 0.2


def test_without_a_label_anywhere_there_is_none() -> None:
    assert find_threshold(np.array([[0.3]]), np.array([[False]])) is None
