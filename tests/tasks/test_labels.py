from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RowError
from seqfit.recipe import TaskRecipe
from seqfit.tasks import Task, build_task

LABELS = ["joy", "anger", "fear"]


def multilabel(**fields: Any) -> Task:
    return build_task(
        TaskRecipe(**{"name": "multilabel", "source": "{text}", "target": "{l}", "labels": LABELS} | fields)
    )


def cause_of(task: Task, row: dict[str, Any]) -> str:
    with pytest.raises(RowError) as caught:
        task.render({"text": "t"} | row, "7")
    return caught.value.cause


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({}, ["fear", "Joy", "joy"]),
        ({}, "['fear', 'joy']"),
        ({"label_separator": ","}, "fear, joy"),
        ({"label_separator": "|"}, " joy|fear "),
        ({"label_separator": " "}, "joy  fear"),
        ({"labels": {"joy": ["0"], "anger": ["1"], "fear": ["2"]}, "label_separator": ","}, "2,0"),
        ({"labels": {"joy": ["0"], "anger": ["1"], "fear": ["2"]}}, [2, 0]),
    ],
)
def test_lists_and_separated_texts_become_the_labels_in_their_order(fields: dict[str, Any], value: Any) -> None:
    task = multilabel(**fields)
    example = task.render({"text": "t", "l": value}, "1")
    assert (example.target, example.references) == ("joy, fear", ("joy, fear",))
    assert task.label_of({"l": value}) == [True, False, True]


@pytest.mark.parametrize("row", [{"l": []}, {"l": "[]"}, {"l": ""}, {"l": None}, {"l": [""]}, {}])
def test_a_row_without_labels_is_an_example(row: dict[str, Any]) -> None:
    assert multilabel().render({"text": "t"} | row, "1").target == "none"
    assert multilabel(missing_target="nothing").render({"text": "t"} | row, "1").target == "nothing"
    assert multilabel().label_of(row) == [False, False, False]


def test_the_word_for_no_label_may_be_in_the_data() -> None:
    assert multilabel().render({"text": "t", "l": "None"}, "1").target == "none"
    assert multilabel(missing_target="nothing").render({"text": "t", "l": "nothing"}, "1").target == "nothing"


def test_a_target_column_that_no_row_has_is_an_error_though_rows_may_lack_it() -> None:
    multilabel().check_columns(["text", "l"])
    with pytest.raises(Exception, match=r"Did you mean 'labels'\?"):
        multilabel(target="{label}").check_columns(["text", "labels"])


@pytest.mark.parametrize("yes", [1, "1", 1.0, True, "TRUE", "yes"])
@pytest.mark.parametrize("no", [0, "0", 0.0, False, "False", "no"])
def test_label_columns_say_yes_or_no(yes: Any, no: Any) -> None:
    task = multilabel(target="", labels=None, label_columns=["joy", "fear"])
    assert task.render({"text": "t", "joy": no, "fear": yes}, "1").target == "fear"
    assert task.render({"text": "t", "joy": no, "fear": no}, "1").target == "none"


@pytest.mark.parametrize("value", [0.7, -1, None, "maybe", 2])
def test_any_other_value_of_a_label_column_is_a_row_error(value: Any) -> None:
    task = multilabel(target="", labels=None, label_columns=["joy", "fear"])
    assert cause_of(task, {"joy": 1, "fear": value}) == "label column is neither 0 nor 1"


def test_label_columns_may_have_labels_with_other_names() -> None:
    task = multilabel(
        target="", labels={"toxic": ["is_toxic"], "rude": ["is_rude"]}, label_columns=["is_toxic", "is_rude"]
    )
    assert task.render({"text": "t", "is_toxic": 0, "is_rude": 1}, "1").target == "rude"


def test_an_unknown_label_is_a_row_error() -> None:
    assert cause_of(multilabel(), {"l": ["joy", "love"]}) == "label not in task.labels"
    assert cause_of(multilabel(), {"l": "joy, fear"}) == "label not in task.labels"


@pytest.mark.parametrize(
    ("generated", "answer"),
    [
        ("fear, joy", "joy, fear"),
        ("Joy,FEAR.", "joy, fear"),
        ("joy, joy", "joy"),
        ("None", "none"),
        ("", "none"),
        ("joy, love", "joy, love"),
        ("none, joy", "joy, none"),
    ],
)
def test_generated_text_is_a_set_of_labels_and_unknown_texts_stay(generated: str, answer: str) -> None:
    assert multilabel().extract(generated) == answer


def test_annotators_vote_and_of_a_tie_the_first_in_the_list_wins() -> None:
    task = build_task(
        TaskRecipe(name="classify", source="{text}", target="{votes.label}", labels=["a", "b"], annotations="majority")
    )
    rows = {"b": ["a", "b", "b"], "a": ["a", "b"], "b ": ["b", "a", "a", "b"]}
    for winner, votes in rows.items():
        row = {"text": "t", "votes": [{"label": vote} for vote in votes]}
        assert task.render(row, "1").target == winner.strip()
    assert cause_of(task, {"votes": [{"label": "a"}, {"label": "c"}]}) == "label not in task.labels"
    assert cause_of(task, {"votes": []}) == "empty target"


def test_a_list_of_labels_without_a_rule_for_annotators_is_a_row_error() -> None:
    task = build_task(TaskRecipe(name="classify", source="{text}", target="{l}", labels=["a", "b"]))
    assert cause_of(task, {"l": ["a", "b"]}) == "several values in one row"
    assert task.render({"text": "t", "l": ["b"]}, "1").target == "b"


def test_a_class_may_stand_for_missing_ones() -> None:
    task = build_task(
        TaskRecipe(
            name="classify", source="{text}", target="{l}", labels={"neutral": ["0"], "good": []}, missing_target="0"
        )
    )
    assert task.render({"text": "t", "l": None}, "1").target == task.text_of_missing() == "neutral"
    assert task.render({"text": "t"}, "1").target == "neutral"
