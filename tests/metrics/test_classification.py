from __future__ import annotations

import pytest

from seqfit.metrics.classification import score_accuracy, score_macro_f1
from seqfit.metrics.scores import Pairs

REFERENCES = [["cat"], ["cat"], ["cat"], ["dog"]]
PREDICTIONS = ["cat", "cat", "dog", "dog"]


def test_accuracy_ignores_case_and_white_space_and_nothing_else() -> None:
    assert score_accuracy(Pairs([["Sci/Tech"], ["a b"], ["x"], ["x"]], ["sci/tech ", "A  b", "y", "x."])).values == {
        "accuracy": 50.0
    }


def test_macro_f1_has_the_value_computed_by_hand() -> None:
    # cat: 2 hits, 3 wanted, 2 predicted: 4/5. dog: 1 hit, 1 wanted, 2 predicted: 2/3.
    scores = score_macro_f1(Pairs(REFERENCES, PREDICTIONS))
    assert scores.values["macro_f1"] == pytest.approx(100 * (4 / 5 + 2 / 3) / 2)
    assert scores.signatures["macro_f1"] == "macro_f1|labels:2"


def test_a_label_that_occurs_nowhere_is_left_out_and_named() -> None:
    scores = score_macro_f1(Pairs(REFERENCES, PREDICTIONS, labels=["Cat", "Dog", "Bird"]))
    assert scores.values["macro_f1"] == pytest.approx(100 * (4 / 5 + 2 / 3) / 2)
    assert scores.signatures["macro_f1"] == "macro_f1|labels:2|left_out:bird"


def test_a_label_that_is_only_predicted_counts_with_f1_0() -> None:
    scores = score_macro_f1(Pairs([["cat"], ["cat"]], ["cat", "bird"], labels=["cat", "bird"]))
    assert scores.values["macro_f1"] == pytest.approx(100 * (2 / 3 + 0) / 2)


def test_a_prediction_that_is_no_label_counts_against_the_wanted_one_only() -> None:
    scores = score_macro_f1(Pairs([["cat"], ["cat"]], ["cat", "I think cat"]))
    assert scores.values["macro_f1"] == pytest.approx(100 * 2 / 3)


def test_macro_f1_is_absent_where_no_label_occurs() -> None:
    assert "none of the labels bird" in score_macro_f1(Pairs([["cat"]], ["dog"], labels=["bird"])).absent["macro_f1"]


def test_any_of_several_references_is_right() -> None:
    pairs = Pairs([["cat", "feline"]], ["feline"])
    assert score_accuracy(pairs).values["accuracy"] == 100.0
    assert score_macro_f1(pairs).values["macro_f1"] == 100.0
