from __future__ import annotations

from typing import Any

from seqfit.recipe.schema import TaskRecipe
from seqfit.report.predictions import SHOWN, is_right, show_predictions

QA = TaskRecipe(name="qa", source="{q}", target="{a}")


def _row(prediction: str, *references: str) -> dict[str, Any]:
    return {"id": "1", "source": "who?", "prediction": prediction, "references": list(references)}


def test_an_answer_is_judged_as_the_metric_does() -> None:
    assert is_right(_row("the Ada!", "ada"), QA)
    assert not is_right(_row("Ada Lovelace", "Ada"), QA)
    assert is_right(_row("", ""), QA)


def test_spanish_articles_do_not_count() -> None:
    spanish = QA.model_copy(update={"language": "es"})
    assert is_right(_row("el río Ebro", "río Ebro"), spanish)


def test_wrong_ones_come_first_and_can_be_shown_alone() -> None:
    rows = [_row("right", "right"), _row("wrong", "other")]
    shown = show_predictions({"split": "test", "predictions": rows}, QA)
    assert shown.index("badge bad") < shown.index("badge good")
    assert "Wrong 1" in shown
    assert 'data-show="bad"' in shown


def test_only_the_first_are_shown_and_the_page_says_so() -> None:
    rows = [_row("x", "x")] * (SHOWN + 10)
    shown = show_predictions({"split": "test", "predictions": rows}, QA)
    assert f"The first {SHOWN} of {SHOWN + 10}" in shown
    assert shown.count("badge good") == SHOWN


def test_a_summary_is_neither_right_nor_wrong() -> None:
    task = TaskRecipe(name="summarize", source="{q}", target="{a}")
    shown = show_predictions({"split": "test", "predictions": [_row("short", "a", "b")]}, task)
    assert "badge" not in shown
    assert "a / b" in shown


def test_an_empty_answer_is_named() -> None:
    shown = show_predictions({"split": "test", "predictions": [_row("", "Ada")]}, QA)
    assert "(no answer)" in shown


def test_an_evaluation_without_answers_says_so() -> None:
    assert "kept no answers" in show_predictions({"split": "test"}, QA)
