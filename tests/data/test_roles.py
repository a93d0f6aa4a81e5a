from __future__ import annotations

from typing import Any

import pytest

from seqfit.data.columns import profile_columns
from seqfit.data.roles import find_templates
from seqfit.errors import RecipeError

LONG = "A long text of many words about something that happened to someone somewhere, told without haste."


def _rows(**columns: Any) -> list[dict[str, Any]]:
    """Twelve rows; # becomes the row's number."""
    return [{name: str(text).replace("#", str(n)) for name, text in columns.items()} for n in range(12)]


@pytest.mark.parametrize(
    ("task", "columns", "prefix", "source", "target"),
    [
        ("qa", {"id": "#", "question": "q #?", "answer": "a"}, "", "question: {question}", "{answer}"),
        (
            "qa",
            {"pregunta": "q", "contexto": LONG, "respuesta": "a"},
            "",
            "question: {pregunta}[[ context: {contexto}]]",
            "{respuesta}",
        ),
        (
            "qa",
            {"id": "#", "one": f"{LONG} #", "two": "Who is number #?", "three": "number #"},
            "",
            "question: {two}[[ context: {one}]]",
            "{three}",
        ),
        (
            "qa",
            {"text": LONG, "query": "q", "response": "a"},
            "",
            "question: {query}[[ context: {text}]]",
            "{response}",
        ),
        ("summarize", {"article": LONG, "highlights": "h"}, "summarize: ", "{article}", "{highlights}"),
        ("summarize", {"fname": "#", "a": "in short a #", "b": LONG}, "summarize: ", "{b}", "{a}"),
        ("translate", {"es": "uno", "en": "one"}, "translate Spanish to English: ", "{es}", "{en}"),
        ("translate", {"src": "uno", "tgt": "one"}, "translate: ", "{src}", "{tgt}"),
        ("translate", {"a": "uno dos tres", "b": "one two three"}, "translate: ", "{a}", "{b}"),
        ("classify", {"text": "fine # film", "sentiment": "good"}, "classify: ", "{text}", "{sentiment}"),
        ("math", {"problem": "2 and 2?", "solution": "4"}, "", "{problem}", "{solution}"),
        ("math", {"id": "#", "a": "what is # and #?", "b": "#"}, "", "{a}", "{b}"),
    ],
)
def test_columns_find_their_roles(task: str, columns: dict[str, Any], prefix: str, source: str, target: str) -> None:
    found = find_templates(task, profile_columns(_rows(**columns)), "my.csv")
    assert (found.prefix, found.source, found.target) == (prefix, source, target)


def test_classes_without_names_are_found_by_content() -> None:
    rows = [{"a": str(n % 4), "b": f"a title number {n}", "c": f"and a longer description {n}"} for n in range(40)]
    found = find_templates("classify", profile_columns(rows), "my.csv")
    assert (found.source, found.target) == ("{b} {c}", "{a}")
    assert found.roles == {"label": "a", "text 1": "b", "text 2": "c"}


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        (
            "qa",
            {"a": "x", "b": "y"},
            r"has the columns a, b\. The task qa needs question, .*task\.source='question: {col} context",
        ),
        ("summarize", {"a": LONG}, "summarize needs summary"),
        ("summarize", {"a": LONG, "b": "so it was", "c": "or it was"}, "summarize needs summary"),
        ("translate", {"a": "x"}, r"translate needs source and target.*task\.source='{col}' task\.target='{col2}'"),
        ("classify", {"text": "all # are different"}, "classify needs label"),
        ("math", {"a": "x", "b": "y"}, "math needs question and answer"),
    ],
)
def test_an_open_role_lists_the_columns_and_the_words(task: str, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        find_templates(task, profile_columns(_rows(**columns)), "my.csv")
