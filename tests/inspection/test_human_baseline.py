from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import DataError
from seqfit.inspection.text_rows import TryQuestion, run_tryout
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([f"text {n}", "odd" if n % 2 else "even"] for n in range(200))
    return load_recipe(
        {
            "model": {"name": "nobody loads it"},
            "task": {"name": "classify", "source": "{text}", "target": "{label}", "labels": ["even", "odd"]},
            "data": {"path": str(tmp_path / "rows.csv")},
        }
    )


def right(question: TryQuestion) -> str:
    return "odd" if int(question.example.source.split()[1]) % 2 else "even"


def test_right_answers_score_everything(recipe: Recipe) -> None:
    baseline = run_tryout(recipe, 10, right)
    assert (baseline.split, baseline.rows) == ("validation", 10)
    assert baseline.scores == {"accuracy": 100.0, "macro_f1": 100.0}
    assert baseline.answers[0]["answer"] == baseline.answers[0]["references"][0]


def test_rows_are_chosen_by_the_seed_and_no_row_twice(recipe: Recipe) -> None:
    first, again = run_tryout(recipe, 10, right), run_tryout(recipe, 10, right)
    assert first == again
    assert len({answer["source"] for answer in first.answers}) == 10
    other = run_tryout(recipe.model_copy(update={"seed": 1}), 10, right)
    assert {answer["id"] for answer in other.answers} != {answer["id"] for answer in first.answers}


def test_an_empty_answer_counts_and_none_ends_it(recipe: Recipe) -> None:
    answers: list[Any] = ["", "even", None]
    baseline = run_tryout(recipe, 10, lambda question: answers[question.number - 1])
    assert [answer["answer"] for answer in baseline.answers] == ["", "even"]
    assert baseline.scores["accuracy"] <= 50


def test_without_an_answer_scores_are_absent_and_not_zero(recipe: Recipe) -> None:
    baseline = run_tryout(recipe, 10, lambda question: None)
    assert (baseline.rows, baseline.scores) == (0, {})
    assert set(baseline.absent) == {"accuracy", "macro_f1"}


def test_more_than_there_are_is_all(recipe: Recipe) -> None:
    asked: list[TryQuestion] = []
    run_tryout(recipe, 10_000, lambda question: asked.append(question) or "odd")
    assert len(asked) == asked[0].total == 20
    assert asked[0].choices == ("even", "odd")


def test_rows_without_a_target_leave_nothing_to_try(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(f"text {n}," for n in range(30)))
    with pytest.raises(DataError, match="empty target"):
        run_tryout(recipe, 3, right)
