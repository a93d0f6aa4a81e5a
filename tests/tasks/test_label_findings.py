from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe import TaskRecipe
from seqfit.tasks import build_task


def problems(name: Any, targets: dict[str, int], labels: list[str] | None = None) -> str:
    labels = (labels or list(targets)) if name == "classify" else labels
    task = build_task(TaskRecipe(name=name, source="{t}", target="{l}", labels=labels))
    return "\n".join(task.find_label_problems(targets))


def test_labels_that_can_be_learnt_are_not_mentioned() -> None:
    assert problems("classify", {"ham": 80, "spam": 20}) == ""
    assert problems("multilabel", {"a": 40, "a, b": 40, "c": 20}, ["a", "b", "c"]) == ""
    assert problems("regression", {"1": 5, "2": 5, "3.5": 9}) == ""
    assert problems("generate", {"x": 1}) == ""
    assert problems("classify", {}, ["a"]) == problems("multilabel", {}, ["a"]) == problems("regression", {}) == ""


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({"ham": 30}, "all 30 rows have the label 'ham'"),
        ({"ham": 93, "spam": 7}, "93 of 100 rows (93.0%) have the label 'ham'"),
        ({f"w{number}": 3 for number in range(7)}, "7 labels in 21 rows"),
        ({"0.25": 50, "0.5": 50, "1": 40}, "all 3 labels are numbers, with decimals such as 0.25"),
    ],
)
def test_classes_that_look_wrong_are_named_with_counts(targets: dict[str, int], words: str) -> None:
    assert words in problems("classify", targets)


def test_whole_numbers_are_classes() -> None:
    assert problems("classify", {"0": 50, "1.0": 50, "2": 40}) == ""


def test_a_label_without_rows_is_named() -> None:
    assert "1 of 3 labels have no row: c" in problems("classify", {"a": 50, "b": 50}, ["a", "b", "c"])
    assert "1 of 3 labels have no row: c" in problems("multilabel", {"a, b": 50, "b": 20}, ["a", "b", "c"])


def test_rows_without_labels_are_counted() -> None:
    assert "20 of 100 rows (20.0%) have no label" in problems("multilabel", {"none": 20, "a": 40, "b": 40}, ["a", "b"])
    assert "95 of 100 rows (95.0%) have the label 'a'" in problems(
        "multilabel", {"a": 60, "a, b": 35, "b": 5}, ["a", "b"]
    )


def test_scores_that_look_like_classes_are_named() -> None:
    assert "only two scores, 0 and 1" in problems("regression", {"0": 5, "1": 5})
    assert "all 9 rows have the score 1" in problems("regression", {"1": 9})
    assert "99 of 100 rows (99.0%) have the score 0" in problems("regression", {"0": 99, "1": 1})
