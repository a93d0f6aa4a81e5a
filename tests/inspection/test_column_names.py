from __future__ import annotations

import pytest

from seqfit.inspection.column_names import Name, find_direction, find_languages, pair_order, score_role


@pytest.mark.parametrize(
    ("path", "plain", "number"),
    [
        ("Answers.text", "answers", ""),
        ("Párrafo 2", "parrafo", "2"),
        ("reviewText", "review_text", ""),
        ("para_a", "para", "a"),
        ("sentence1", "sentence", "1"),
        ("qas.query_text", "query_text", ""),
    ],
)
def test_a_name_is_taken_apart(path: str, plain: str, number: str) -> None:
    assert (Name.of(path).plain, Name.of(path).number) == (plain, number)


def test_the_plain_name_scores_before_a_longer_one() -> None:
    scores = [score_role(Name.of(path), "context") for path in ("context", "my_context", "context_of_it", "foo")]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == 0


@pytest.mark.parametrize(
    ("role", "path"),
    [("question", "Pregunta"), ("answer", "Réponse"), ("context", "párrafo"), ("summary", "Zusammenfassung")],
)
def test_names_are_known_in_several_languages_and_without_accents(role: str, path: str) -> None:
    assert score_role(Name.of(path), role) > 0.9


def test_languages_are_found_by_column() -> None:
    found = find_languages(["translation.en", "fra_Latn", "text_german", "label", "pt-BR"])
    assert found == {
        "translation.en": "English",
        "fra_Latn": "French",
        "text_german": "German",
        "pt-BR": "Portuguese",
    }


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("Helsinki-NLP/opus-mt-en-fr", ("English", "French")),
        ("data/fra_to_eng.tsv", ("French", "English")),
        ("wmt/en2fr", ("English", "French")),
        ("english-and-more", None),
        ("en-fr and fr-en", None),
    ],
)
def test_a_name_may_state_the_direction(text: str, direction: tuple[str, str] | None) -> None:
    assert find_direction(text, ["English", "French"]) == direction


def test_known_pairs_have_an_order() -> None:
    def order(first: str, second: str) -> int:
        return pair_order(Name.of(first), Name.of(second))

    assert order("nl", "cm") == -1
    assert order("ref0", "src") == 1
    assert order("orig", "simp.9") == -1
    assert order("corrected_sentence", "original_sentence") == 1
    assert order("a", "b") == 0
