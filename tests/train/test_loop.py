from __future__ import annotations

import math

from seqfit.train.loop import Best


def test_the_first_evaluation_is_the_best_so_far() -> None:
    assert Best("f1", 0.0).judge(10.0, 1.0) == (True, True)


def test_of_equal_scores_the_lower_loss_is_kept_but_is_no_improvement() -> None:
    best = Best("f1", 0.0)
    best.judge(0.0, 10.8)
    assert best.judge(0.0, 10.6) == (True, False)
    assert best.judge(0.0, 10.7) == (False, False)
    assert best.stale == 2


def test_small_gains_are_kept_and_add_up_to_an_improvement() -> None:
    best = Best("f1", 1.0)
    best.judge(50.0, 1.0)
    assert best.judge(50.6, 1.0) == (True, False)
    assert best.judge(51.2, 1.0) == (True, True)


def test_a_lower_loss_is_better() -> None:
    best = Best("loss", 0.0)
    best.judge(2.0, 2.0)
    assert best.judge(1.0, 1.0) == (True, True)
    assert best.judge(1.5, 1.5) == (False, False)


def test_without_any_score_the_first_model_is_kept() -> None:
    best = Best("loss", 0.0)
    assert best.judge(None, None) == (True, True)
    assert math.isinf(best.loss)
