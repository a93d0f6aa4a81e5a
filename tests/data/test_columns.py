from __future__ import annotations

import pytest

from seqfit.data.columns import find_by_name, find_languages, guess_language, profile_columns

ROWS = [
    {
        "id": 7,
        "Pregunta": "¿Quién fue la primera?",
        "answers": {"text": ["Ada", "A. L."], "start": [0]},
        "párrafo": "x",
    },
    {"id": 8, "Pregunta": "¿Y por qué no?", "answers": {"text": [], "start": []}, "párrafo": None},
]


def test_columns_are_profiled_one_level_deep() -> None:
    columns = {column.path: column for column in profile_columns(ROWS)}
    assert list(columns) == ["id", "Pregunta", "answers.text", "answers.start", "párrafo"]
    assert columns["Pregunta"].question_share == 1
    assert columns["Pregunta"].is_prose
    assert columns["id"].is_key
    assert columns["párrafo"].filled == 1


@pytest.mark.parametrize(
    ("role", "path"), [("question", "Pregunta"), ("answer", "answers.text"), ("context", "párrafo"), ("summary", None)]
)
def test_names_are_known_in_spanish_and_without_accents(role: str, path: str | None) -> None:
    column = find_by_name(role, profile_columns(ROWS))
    assert (column.path if column else None) == path


def test_the_plain_name_comes_before_a_longer_one() -> None:
    columns = profile_columns([{"context_processed": "a", "my_context": "b", "context": "c"}])
    assert [find_by_name("context", columns).path] == ["context"]  # type: ignore[union-attr]
    rest = find_by_name("context", columns, taken={"context"})
    assert rest is not None
    assert rest.path == "context_processed"


def test_few_values_are_seen() -> None:
    columns = profile_columns([{"label": str(n % 3), "text": f"text {n}"} for n in range(30)])
    assert [column.path for column in columns if column.has_few_values] == ["label"]


def test_languages_are_found_by_column() -> None:
    columns = profile_columns([{"id": "1", "translation": {"en": "a", "de": "b"}}])
    assert [(language, column.path) for language, column in find_languages(columns)] == [
        ("English", "translation.en"),
        ("German", "translation.de"),
    ]


@pytest.mark.parametrize(
    ("text", "language"), [("¿Qué es lo que dijo de la guerra?", "es"), ("What is the cause of it?", "en"), ("", "en")]
)
def test_small_words_tell_the_language(text: str, language: str) -> None:
    assert guess_language([text]) == language
