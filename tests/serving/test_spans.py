from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe import TaskRecipe
from seqfit.serving.spans import find_answer, find_spans
from seqfit.tasks import build_task


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("Ge", "Germanium is shown as Ge, not as ge.", ["Ge"]),
        ("new york", "In New\n York it rains.", ["New\n York"]),
        ("Ada", "Ada and Ada", ["Ada", "Ada"]),
        ("ünc", "München 🎉 ist da", ["ünc"]),
        ("42%", "It is 42% (of 42)", ["42%"]),
        ("", "anything", []),
        ("nowhere", "not here", []),
    ],
)
def test_spans_are_places_in_characters(answer: str, text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in find_spans(answer, text)] == found


@pytest.mark.parametrize(
    ("source", "row", "columns"),
    [
        ("{question} {context}", {"question": "Is it Lima?", "context": "Lima it is"}, ["context"]),
        ("{q} {passage}", {"q": "Lima?", "passage": "The capital of Peru is Lima"}, ["passage"]),
        ("{q} {passage}", {"q": "Lima?", "passage": "The capital of Peru is Quito"}, []),
    ],
)
def test_an_answer_is_looked_for_in_the_context(source: str, row: dict[str, Any], columns: list[str]) -> None:
    task = build_task(TaskRecipe(name="qa", source=source, target="{answer}"))
    assert list(find_answer(task, row, "Lima")) == columns


def test_other_tasks_have_no_context() -> None:
    task = build_task(TaskRecipe(name="summarize", source="{text}", target="{summary}"))
    assert find_answer(task, {"text": "Lima"}, "Lima") == {}
