from __future__ import annotations

from typing import Any

import pytest

from seqfit.inspection.columns import profile_columns

ROWS = [
    {
        "id": 7,
        "Pregunta": "¿Quién fue la primera?",
        "answers": {"text": ["Ada", "A. L."], "start": [0]},
        "párrafo": "x",
    },
    {"id": 8, "Pregunta": "¿Y por qué no?", "answers": {"text": [], "start": []}, "párrafo": None},
]


def _of(**columns: Any) -> dict[str, Any]:
    """Profiles of twelve rows; # becomes the row's number, a list is assigned in turn."""
    rows = [
        {name: v[n % len(v)] if isinstance(v, list) else str(v).replace("#", str(n)) for name, v in columns.items()}
        for n in range(12)
    ]
    return {column.path: column for column in profile_columns(rows)}


def test_columns_are_profiled_one_level_deep() -> None:
    columns = {column.path: column for column in profile_columns(ROWS)}
    assert list(columns) == ["id", "Pregunta", "answers.text", "answers.start", "párrafo"]
    assert columns["Pregunta"].question_share == 1
    assert columns["Pregunta"].is_prose
    assert columns["id"].not_text == "ids"
    assert columns["answers.text"].is_list
    assert columns["párrafo"].filled == 1


def test_writing_without_spaces_is_prose() -> None:
    assert _of(a="これは#番目の文です。", b="短い")["a"].is_prose
    assert not _of(a="これは#番目の文です。", b=["赤", "青"])["b"].is_prose


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("https://example.org/#", "addresses"),
        ("2020-03-1#", "dates"),
        ("03 Aug 201#,Thursday", "dates"),
        ("a9f3e#", "ids"),
        ("26#.json", "ids"),
        ("#", "ids"),
        ("0.25#", None),
        ("always so", "the same in every row"),
        (["train", "test"], "names of splits"),
        ("a real sentence, number #", None),
        (["good", "bad"], None),
    ],
)
def test_what_is_no_text_has_its_reason(value: Any, reason: str | None) -> None:
    assert _of(thing=value, text="some text #")["thing"].not_text == reason


def test_metadata_is_known_by_its_name() -> None:
    columns = _of(author="Ada # Lovelace and others", text="a # b c")
    assert columns["author"].not_text == "metadata"


def test_a_second_form_of_a_column_is_marked() -> None:
    columns = _of(
        answer="It is # &amp; no more.",
        answer_html="<p>It is <b>#</b> &amp; no more.</p>",
        answer_clean="it is # amp no more",
        corrected="It is number # and no more.",
    )
    assert columns["answer"].not_text is None
    assert columns["answer_html"].not_text == "the same as answer"
    assert columns["corrected"].not_text is None


def test_a_correction_that_changes_commas_is_no_second_form() -> None:
    columns = _of(incorrect="well I think so # times", correct="Well, I think so # times.")
    assert [column.not_text for column in columns.values()] == [None, None]


def test_few_values_flags_and_fractions_are_seen() -> None:
    columns = _of(label=["a", "b", "c"], toxic=["0", "1"], score=["0.5", "2", "3.25"], stars=["1.0", "2.0"], text="t #")
    assert [path for path, column in columns.items() if column.has_few_values] == ["label", "toxic", "score", "stars"]
    assert [path for path, column in columns.items() if column.is_flag] == ["toxic"]
    assert [path for path, column in columns.items() if column.has_fractions] == ["score"]
