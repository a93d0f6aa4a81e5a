from __future__ import annotations

import random

import pytest

from seqfit.metrics.confidences import find_no_answer_threshold, measure_calibration


def test_the_calibration_error_of_the_example() -> None:
    found = measure_calibration([0.9, 0.9, 0.6], [True, False, True])
    assert found.ece == pytest.approx(100 * (2 / 3 * 0.4 + 1 / 3 * 0.4))
    assert [(one.rows, one.right) for one in found.bins] == [(1, 1.0), (2, 0.5)]


def test_confidences_that_come_true_have_a_small_error_and_others_a_large_one() -> None:
    chance = random.Random(0)
    confidences = [chance.random() for _ in range(20_000)]
    came_true = [chance.random() < confidence for confidence in confidences]
    assert measure_calibration(confidences, came_true).ece < 2
    assert measure_calibration([0.99] * 20_000, came_true).ece == pytest.approx(49, abs=2)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_the_ends_of_the_scale_are_in_a_bin(confidence: float) -> None:
    (only,) = measure_calibration([confidence], [True]).bins
    assert only.low <= confidence <= only.high


def test_a_model_that_is_sure_of_what_it_does_not_know_leaves_everything_unanswered() -> None:
    found = find_no_answer_threshold([0.0, 0.0], [True, True], [False, False], [0.1, 0.2])
    assert (found.threshold, found.score) == (0.0, 100.0)
