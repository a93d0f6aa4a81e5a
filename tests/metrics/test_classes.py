from __future__ import annotations

from seqfit.metrics.classes import ClassScores, score_classes


def test_the_classes_of_the_example() -> None:
    report = score_classes([["cat"], ["cat"], ["dog"]], ["cat", "Dog", "bird"])
    assert report.classes == [ClassScores("cat", 2, 100.0, 50.0, 200 / 3), ClassScores("dog", 1, 0.0, 0.0, 0.0)]
    assert report.confusion == [[1, 1, 0], [0, 0, 1]]


def test_what_was_never_predicted_has_no_precision() -> None:
    cat, dog, bird = score_classes([["cat"], ["dog"]], ["cat", "cat"], ["cat", "dog", "bird"]).classes
    assert (cat.precision, cat.recall) == (50.0, 100.0)
    assert (dog.precision, dog.recall, dog.f1) == (None, 0.0, 0.0)
    assert (bird.rows, bird.precision, bird.recall, bird.f1) == (0, None, None, None)


def test_several_labels_per_row_have_scores_and_no_confusion() -> None:
    report = score_classes([["a, b"], ["none"]], ["b", "a"], ["a", "b"], "none")
    assert report.confusion is None
    assert [(one.label, one.rows, one.f1) for one in report.classes] == [("a", 1, 0.0), ("b", 1, 100.0)]
