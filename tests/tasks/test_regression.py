from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RowError
from seqfit.recipe import TaskRecipe
from seqfit.tasks import Task, build_task
from seqfit.tasks.number import read_score, round_score, write_score


def regression(**fields: Any) -> Task:
    return build_task(TaskRecipe(**{"name": "regression", "source": "{text}", "target": "{score}"} | fields))


@pytest.mark.parametrize(
    ("value", "target", "reference"),
    [
        (3.8, "3.8", "3.8"),
        ("3.80", "3.8", "3.8"),
        (4, "4", "4"),
        (0.12345, "0.123", "0.12345"),
        (0.001234, "0.00123", "0.001234"),
        (-1.005, "-1", "-1.005"),
        (12345.678, "12345.68", "12345.678"),
        (1e-7, "0.0000001", "0.0000001"),
        ("1e3", "1000", "1000"),
        (-0.0, "0", "0"),
    ],
)
def test_the_target_is_rounded_and_the_reference_is_not(value: Any, target: str, reference: str) -> None:
    example = regression().render({"text": "t", "score": value}, "1")
    assert (example.target, example.references) == (target, (reference,))
    assert regression().label_of({"score": value}) == float(value)


@pytest.mark.parametrize("value", ["1,250", "85%", "high", "1_000", "inf", "nan", "3 of 5"])
def test_what_is_no_plain_number_is_a_row_error(value: str) -> None:
    with pytest.raises(RowError) as caught:
        regression().render({"text": "t", "score": value}, "1")
    assert caught.value.cause == "not a number"


def test_a_missing_score_is_a_row_error_or_what_the_recipe_says() -> None:
    with pytest.raises(RowError) as caught:
        regression().render({"text": "t", "score": None}, "1")
    assert caught.value.cause == "empty target"
    assert regression(missing_target="0.50").render({"text": "t", "score": ""}, "1").target == "0.5"


def test_annotators_scores_are_averaged() -> None:
    example = regression(annotations="mean").render({"text": "t", "score": [1, 2, None, 2]}, "1")
    assert (example.target, float(example.references[0])) == ("1.67", pytest.approx(5 / 3))


@pytest.mark.parametrize(
    ("generated", "answer"), [(" 3.8 ", "3.8"), ("score: 4.", "4"), ("-0.5", "-0.5"), ("none", "none"), ("", "")]
)
def test_the_number_in_a_generated_text_is_the_answer(generated: str, answer: str) -> None:
    assert regression().extract(generated) == answer


@pytest.mark.parametrize("value", [0.0, 3.0, -2.25, 1e-9, 123456789.125])
def test_a_score_is_read_back_as_it_was_written(value: float) -> None:
    assert read_score(write_score(value)) == value
    assert read_score(round_score(value)) == pytest.approx(value, abs=0.005)
