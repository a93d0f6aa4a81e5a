from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe.schema import TaskRecipe
from seqfit.tasks.registry import find_task_mistakes, find_template_mistakes
from seqfit.tasks.task import fold_word


@pytest.mark.parametrize("text", ["Yes", " yes. ", "YES"])
def test_case_space_and_full_stop_are_ignored(text: str) -> None:
    assert fold_word(text) == "yes"


def test_every_broken_template_is_found_with_its_field() -> None:
    task = TaskRecipe(name="qa", source=["{q}", "{q"], target="{}", references=["]]"])
    assert [path for path, _ in find_task_mistakes(task)] == [
        ("task", "source"),
        ("task", "target"),
        ("task", "references"),
    ]


def test_what_is_not_text_is_left_to_the_schema() -> None:
    assert find_template_mistakes({"source": 5, "target": ["{a}", None]}) == []


BASE = {"source": "{t}", "target": "{l}"}


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (
            {"name": "classify", "labels": ["a"], "label_separator": ","},
            "label_separator",
            "set task.name to multilabel",
        ),
        ({"name": "qa", "choices": "{c}"}, "choices", "set task.name to multiple-choice"),
        ({"name": "qa", "choice_base": 0}, "choice_base", "set task.name to multiple-choice"),
        ({"name": "regression", "labels": ["a", "b"]}, "labels", "set task.name to classify or multilabel"),
        ({"name": "generate", "label_columns": ["a"]}, "label_columns", "set task.name to multilabel"),
        ({"name": "multilabel"}, "labels", "task.label_columns"),
        ({"name": "multiple-choice"}, "choices", "task.choices='{choices}'"),
        ({"name": "classify", "labels": ["a"], "annotations": "mean"}, "annotations", "Set task.annotations=majority"),
        ({"name": "regression", "annotations": "majority"}, "annotations", "Set task.annotations=mean"),
        ({"name": "qa", "annotations": "mean"}, "annotations", "Remove task.annotations"),
        ({"name": "regression", "references": ["{r}"]}, "references", "Remove task.references"),
        ({"name": "classify", "labels": ["a", "b"], "missing_target": "c"}, "missing_target", "Give one of a, b"),
        ({"name": "regression", "missing_target": "none"}, "missing_target", "task.missing_target=0"),
        ({"name": "multiple-choice", "choices": "{c}", "missing_target": "a"}, "missing_target", "Remove"),
        ({"name": "qa", "missing_target": " "}, "missing_target", "task.missing_target=none"),
        ({"name": "multilabel", "labels": ["a", "b"], "missing_target": "A"}, "missing_target", "Give another text"),
        ({"name": "multilabel", "labels": ["a, b"]}, "labels", "task.labels={a b: ['a, b'], ...}"),
        ({"name": "multilabel", "labels": ["a", "None"]}, "labels", "task.missing_target=nothing"),
        ({"name": "multilabel", "labels": ["a", "A"]}, "labels", "is a value of both"),
        ({"name": "multilabel", "label_columns": ["a"]}, "label_columns", "Remove one of the two"),
        (
            {"name": "multilabel", "labels": ["a"], "label_columns": ["b"], "target": ""},
            "label_columns",
            "remove task.labels",
        ),
    ],
)
def test_a_field_that_the_task_has_no_use_for_is_named_with_what_to_do(
    fields: dict[str, Any], field: str, words: str
) -> None:
    ((place, sentence),) = find_task_mistakes(TaskRecipe.model_validate(BASE | fields))
    assert place == ("task", field)
    assert words in sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "multilabel", "labels": ["a", "none"], "missing_target": "nothing"},
        {"name": "multilabel", "label_columns": ["a"], "target": ""},
        {"name": "classify", "labels": {"a": ["1"]}, "missing_target": "1", "annotations": "majority"},
        {"name": "regression", "missing_target": "0", "annotations": "mean"},
        {"name": "multiple-choice", "choices": ["{a}", "{b}"], "choice_base": "a", "annotations": "majority"},
        {"name": "generate", "references": ["{r}"], "missing_target": "nothing"},
    ],
)
def test_what_fits_together_is_no_mistake(fields: dict[str, Any]) -> None:
    assert find_task_mistakes(TaskRecipe.model_validate(BASE | fields)) == []
