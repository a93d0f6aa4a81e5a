"""Ratings become rows that the task makes the right target of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.rundir import files
from seqfit.serving.feedback import keep_rating
from seqfit.serving.requests import Rating
from tests.serving.conftest import RuleModel, Serve

ROW = {"question": "Capital of Peru?", "context": "The capital of Peru is Lima."}
SUBJECT_FIRST = {
    "name": "qa",
    "source": "{question} {context}",
    "target": "{subject}: {answer}",
    "answer_after": ": ",
}
CLASSES = {"name": "classify", "source": "{text}", "target": "{label}", "labels": {"good": ["1"], "bad": ["0"]}}
SEVERAL = {"name": "multilabel", "source": "{text}", "label_columns": ["joy", "fear", "anger"]}
LISTED = {"name": "multilabel", "source": "{text}", "target": "{labels}", "labels": ["joy", "fear"]}
CHOICES = {
    "name": "multiple-choice",
    "source": "{question}",
    "target": "{right}",
    "choices": "{options}",
    "choice_base": "a",
}


@pytest.mark.parametrize(
    ("task", "row", "text", "prediction", "columns"),
    [
        (SUBJECT_FIRST, ROW, "Peru: Lima", "Lima", {"subject": "Peru", "answer": "Lima"}),
        (CLASSES, {"text": "fine"}, "good", "good", {"label": "good"}),
        (SEVERAL, {"text": "oh"}, "joy, anger", "joy, anger", {"joy": 1, "fear": 0, "anger": 1}),
        (LISTED, {"text": "oh"}, "joy, fear", "joy, fear", {"labels": ["joy", "fear"]}),
        (CHOICES, {"question": "Which?", "options": ["dog", "crow"]}, "crow", "crow", {"right": "b"}),
        (
            {"name": "math", "source": "{problem}", "target": "{solution}"},
            {"problem": "1 + 1"},
            "1 and 1 is #### 2",
            "2",
            {"solution": "1 and 1 is #### 2"},
        ),
    ],
)
def test_a_right_answer_is_a_row_to_train_on(
    task: dict[str, Any], row: dict[str, Any], text: str, prediction: str, columns: dict[str, Any], tmp_path: Path
) -> None:
    model = RuleModel(tmp_path, recipe=task)
    kept = keep_rating(model, Rating(row=row, prediction=prediction, text=text, rating="up"), row)
    assert (kept.path, kept.trains) == (tmp_path / files.FEEDBACK, True)
    line = json.loads(kept.path.read_text("utf-8"))
    about = line.pop("feedback")
    assert line == row | columns
    assert (about["rating"], about["prediction"], about["model"]) == ("up", prediction, "rule")
    example = model.task.render(line, "1")
    assert model.task.extract(example.target, example.choices) == prediction


def test_a_wrong_answer_that_is_corrected_is_a_row_to_train_on(tmp_path: Path) -> None:
    model = RuleModel(tmp_path, recipe=SUBJECT_FIRST)
    right = {"subject": "Peru", "answer": "Lima"}
    kept = keep_rating(model, Rating(row=ROW, prediction="Quito", rating="down", correct=right), ROW)
    line = json.loads(kept.path.read_text("utf-8"))
    assert {"subject": "Peru", "answer": "Lima", **ROW}.items() <= line.items()
    assert line["feedback"]["rating"] == "down"


@pytest.mark.parametrize(
    "rating",
    [
        Rating(row=ROW, prediction="Quito", rating="down"),
        Rating(row=ROW, prediction="Lima", rating="up"),  # the subject is not known
        Rating(row=ROW, prediction="Quito", rating="down", correct={"answer": "Lima"}),
    ],
)
def test_a_line_without_a_right_target_is_kept_apart_and_says_why(rating: Rating, tmp_path: Path) -> None:
    kept = keep_rating(RuleModel(tmp_path, recipe=SUBJECT_FIRST), rating, ROW)
    assert (kept.path, kept.trains) == (tmp_path / files.FEEDBACK_REJECTED, False)
    assert json.loads(kept.path.read_text("utf-8"))["feedback"]["why"] == kept.why_not
    assert not (tmp_path / files.FEEDBACK).exists()


def test_a_class_that_there_is_not_is_no_target(tmp_path: Path) -> None:
    row = {"text": "fine"}
    rating = Rating(row=row, prediction="good", rating="down", correct={"label": "splendid"})
    assert not keep_rating(RuleModel(tmp_path, recipe=CLASSES), rating, row).trains


def test_a_rating_comes_over_http_and_a_folder_that_cannot_be_written_is_said(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "file").write_text("")
    model, blocked = RuleModel(tmp_path), RuleModel(tmp_path / "file", "blocked")
    body = {"row": ROW, "prediction": "Lima", "rating": "up"}
    with serve([model, blocked]) as (client, _):
        assert client.post("/feedback", body)[1]["trains"] is True
        assert client.post("/feedback", {**body, "rating": "so-so"})[0] == 422
        assert client.post("/feedback", {**body, "row": {}})[0] == 422
        status, said = client.post("/feedback", {**body, "model": "blocked"})
    assert (status, said["error"]["type"]) == (507, "not_written")
    assert len((tmp_path / files.FEEDBACK).read_text("utf-8").splitlines()) == 1
