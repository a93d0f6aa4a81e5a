from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqfit.serving.filled import filled_pattern, read_filled
from seqfit.tasks import render_template

QA = "question: {question} context: {context}"


@pytest.mark.parametrize(
    ("template", "text", "columns"),
    [
        ("{subject}: {answer}", "Peru: Lima", {"subject": "Peru", "answer": "Lima"}),
        ("{subject}: {answer}", "a: b: c", {"subject": "a", "answer": "b: c"}),
        ("{subject}: {answer}", "Lima", None),
        ("{answer}.", "Lima", None),
        ("{answer}.", "Lima.", {"answer": "Lima"}),
        (QA, "question:  context: x", None),
        ("{q}[[ in {c}]]", "Why? in x", {"q": "Why?", "c": "x"}),
        ("{q}[[ in {c}]]", "Why?", {"q": "Why?", "c": ""}),
        ("{a} {a}", "x x", None),
    ],
)
def test_columns_are_read_off_a_text(template: str, text: str, columns: dict[str, str] | None) -> None:
    assert read_filled(template, text) == columns


@given(st.text("ab :.", min_size=0), st.text("ab :.", min_size=0))
def test_the_pattern_is_that_of_the_texts_that_can_be_read(question: str, context: str) -> None:
    text = render_template(QA, {"question": question, "context": context})
    found = read_filled(QA, text)
    assert (found is not None) == (re.search(filled_pattern([QA]), text) is not None)
    if found is not None:
        assert render_template(QA, found) == text
