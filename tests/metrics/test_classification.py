from __future__ import annotations

import numpy as np
import pytest

from seqfit.metrics import Scores, score
from seqfit.metrics.labels_and_numbers import score_accuracy, score_macro_f1
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


def labelled(references: list[str], predictions: list[str], labels: list[str] | None = None) -> Scores:
    metrics = ["micro_f1", "macro_f1", "subset_accuracy"]
    return score(metrics, [[text] for text in references], predictions, labels=labels, no_label="none")


def test_labels_of_a_row_are_a_set() -> None:
    found = labelled(["cat, dog", "none", "dog"], ["Dog,cat", "None", "dog, cat"]).values
    assert found["subset_accuracy"] == pytest.approx(200 / 3)
    assert found["micro_f1"] == pytest.approx(100 * 2 * 3 / (3 + 4))
    assert found["macro_f1"] == pytest.approx((100 * 2 / 3 + 100) / 2)


def test_a_word_that_is_no_label_counts_as_wrong() -> None:
    assert labelled(["cat"], ["cat, cow"], ["cat", "dog"]).values["micro_f1"] == pytest.approx(200 / 3)
    assert labelled(["cat"], ["cow"], ["cat", "dog"]).values == {"micro_f1": 0, "macro_f1": 0, "subset_accuracy": 0}


def test_micro_f1_is_absent_where_nothing_has_a_label() -> None:
    found = labelled(["none"], [""], ["cat"])
    assert set(found.absent) == {"micro_f1", "macro_f1"}
    assert found.values == {"subset_accuracy": 100}


def test_multilabel_scores_agree_with_a_count_by_hand_on_random_sets() -> None:
    draw = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    wanted, said = (draw.random((60, 4)) < 0.4 for _ in range(2))
    texts = [[", ".join(np.array(names)[row]) or "none" for row in rows] for rows in (wanted, said)]
    found = labelled(texts[0], texts[1], names).values
    hits = (wanted & said).sum(0)
    f1 = 200 * hits / (wanted.sum(0) + said.sum(0))
    assert found["macro_f1"] == pytest.approx(f1.mean())
    assert found["micro_f1"] == pytest.approx(200 * hits.sum() / (wanted.sum() + said.sum()))
    assert found["subset_accuracy"] == pytest.approx(100 * (wanted == said).all(1).mean())


def test_an_exact_match_counts_case_and_punctuation_but_no_space() -> None:
    found = score(["exact_match"], [["He goes."], ["a b", "c"]], ["he goes.", " c\n"])
    assert found.values == {"exact_match": 50}
