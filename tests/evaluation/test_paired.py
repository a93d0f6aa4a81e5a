"""Two evaluations of the same rows: what changed, with intervals, in groups, with examples."""

from __future__ import annotations

import random
from typing import Any

import pytest

from seqfit.errors import DataError
from seqfit.evaluation.analysis import analyse, group_rows
from seqfit.evaluation.paired import pair_evaluations
from seqfit.recipe import Recipe, TaskRecipe

RECIPE = Recipe.model_validate(
    {
        "model": {"path": "m"},
        "task": {"name": "qa", "source": "{question} {context}", "target": "{answer}"},
        "data": {"path": "d"},
    }
)
ROWS = 300


def made(right_share: float, seed: int, rows: int = ROWS) -> dict[str, Any]:
    """Questions with who have answers right by `right_share`; questions with when are always wrong."""
    chance = random.Random(seed)
    predictions = []
    for number in range(rows):
        word = "when" if number % 3 == 0 else "who"
        is_right = word == "who" and chance.random() < right_share
        predictions.append(
            {
                "id": str(number),
                "source": f"{word} did it? {'long ' * (number % 60)}context",
                "references": [f"answer {number}"],
                "prediction": f"answer {number}" if is_right else "nonsense",
            }
        )
    return {"predictions": predictions}


def test_a_clear_difference_is_significant_and_counted_in_rows() -> None:
    found = pair_evaluations(made(0.5, 1), made(0.9, 2), RECIPE, ["a", "b"])
    main = found.scores[0]
    assert main.name == "f1"
    assert main.second - main.first == pytest.approx(main.difference)
    assert main.is_significant
    assert main.is_better
    assert main.low is not None
    assert main.high is not None
    assert 0 < main.low < main.difference < main.high
    assert main.p is not None
    assert main.p < 0.01
    gained = (found.better_rows - found.worse_rows) / ROWS * 100
    assert main.difference == pytest.approx(gained)  # of right or wrong rows without shared words it is the same
    assert found.better[0].second == found.better[0].references[0]
    assert found.worse[0].first == found.worse[0].references[0]


def test_the_same_predictions_do_not_differ() -> None:
    found = pair_evaluations(made(0.5, 1), made(0.5, 1), RECIPE, ["a", "b"])
    assert found.scores[0].difference == 0
    assert found.scores[0].is_significant is False
    assert found.scores[0].p == 1.0
    assert (found.better_rows, found.worse_rows) == (0, 0)


def test_two_runs_that_are_as_good_are_rarely_called_different() -> None:
    called = sum(
        bool(pair_evaluations(made(0.7, seed), made(0.7, 100 + seed), RECIPE, ["a", "b"]).scores[0].is_significant)
        for seed in range(20)
    )
    assert called <= 4  # of 20 with a probability of 5% each, more than 4 in three of 1,000


def test_groups_show_where_it_got_better() -> None:
    found = pair_evaluations(made(0.5, 1), made(0.9, 2), RECIPE, ["a", "b"])
    groups = {(group.kind, group.name): group for group in found.groups}
    assert groups["question", "when"].change.difference == 0
    assert groups["question", "who"].change.is_significant
    assert groups["question", "who"].rows == 200
    assert [name for kind, name in groups if kind == "length"] == ["0 to 24 words", "25 to 49 words", "50 to 99 words"]


def test_only_rows_that_both_have_are_compared() -> None:
    first, second = made(0.5, 1), made(0.5, 1, rows=200)
    second["predictions"][0]["references"] = ["another answer"]
    found = pair_evaluations(first, second, RECIPE, ["a", "b"])
    assert (found.rows, found.left_out) == (199, 102)


def test_runs_without_a_common_row_are_refused() -> None:
    other = made(0.5, 1)
    for row in other["predictions"]:
        row["id"] = f"x{row['id']}"
    with pytest.raises(DataError, match="no evaluated row in common"):
        pair_evaluations(made(0.5, 1), other, RECIPE, ["a", "b"])


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("Who wrote it? Ada knew when.", "who"),
        ("¿Por qué llueve?", "por qué"),
        ("¿Cuántos hay?", "cuánto"),
        ("Name the river.", "other"),
        ("showhow", "other"),
        ("Ada lived when steam was new. She wrote what nobody read. Who was she?", "who"),
        ("A text of more than fifteen words that begins a source and has no question in it until when", "other"),
    ],
)
def test_the_first_question_word_is_the_kind_of_the_question(source: str, kind: str) -> None:
    rows = [{"source": source, "references": ["a"]}] * 5 + [{"source": "which", "references": ["a"]}] * 5
    assert kind in group_rows(RECIPE.task, rows)["question"]


def test_an_uncertain_model_gets_a_no_answer_threshold_and_its_calibration() -> None:
    rows = [
        {"references": [""], "prediction": "guess", "confidence": 0.2, "scores": {"em": 0.0, "f1": 0.0}},
        {"references": ["Ada"], "prediction": "Ada", "confidence": 0.9, "scores": {"em": 100.0, "f1": 100.0}},
    ]
    found = analyse(RECIPE.task, rows)
    assert found["no_answer_threshold"]["em"] == {"threshold": pytest.approx(0.1), "score": 100.0}
    assert found["calibration"]["ece"] == pytest.approx(100 * (0.5 * 0.2 + 0.5 * 0.1))


def test_a_classifier_has_its_classes_and_who_was_taken_for_whom() -> None:
    task = TaskRecipe(name="classify", source="{text}", target="{label}", labels=["cat", "dog"])
    found = analyse(task, [{"references": ["cat"], "prediction": "dog"}, {"references": ["dog"], "prediction": "dog"}])
    assert found["confusion"] == [[0, 1, 0], [0, 1, 0]]
    assert found["classes"][1] == {"label": "dog", "rows": 1, "precision": 50.0, "recall": 100.0, "f1": 200 / 3}
    assert "calibration" not in found
