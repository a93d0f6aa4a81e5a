from __future__ import annotations

import unicodedata

import pytest

from seqfit.metrics.scores import Pairs
from seqfit.metrics.texts import normalize_answer, score_squad


@pytest.mark.parametrize(
    ("text", "language", "normalized"),
    [
        ("The  Eiffel-Tower, an icon!", "en", "eiffeltower icon"),
        ("theatre", "en", "theatre"),
        ("café", "en", "café"),
        ("¿Qué?", "en", "¿qué"),
        ("the", "en", ""),
        ("¿El Niño?", "es", "niño"),
        ("La  Nación, un «país»…", "es", "nacion pais"),
        ("los las unos unas una", "es", ""),
        ("del río al mar", "es", "del rio al mar"),
        ("lo mejor", "es", "lo mejor"),
        ("Él", "es", "el"),
        ("pingüino", "es", "pinguino"),
        ("a the", "es", "a the"),
        ("an der Straße", "de", "an der straße"),
        ("„Über“", "de", "über"),
    ],
)
def test_an_answer_is_normalised_by_its_language(text: str, language: str, normalized: str) -> None:
    assert normalize_answer(text, language) == normalized


@pytest.mark.parametrize("text", ["Él y el niño", "AÑO", "Pingüino"])
def test_spanish_is_normalised_alike_composed_or_not(text: str) -> None:
    assert normalize_answer(unicodedata.normalize("NFD", text), "es") == normalize_answer(text, "es")


def test_spanish_keeps_n_and_ñ_apart() -> None:
    assert normalize_answer("año", "es") != normalize_answer("ano", "es")


@pytest.mark.parametrize("language", ["en", "es", "de"])
def test_normalising_twice_changes_nothing(language: str) -> None:
    for text in ("The Cat's  hat.", "«La» casa", "x - y", "", "1,000"):
        once = normalize_answer(text, language)
        assert normalize_answer(once, language) == once


def test_em_and_f1_have_the_values_computed_by_hand() -> None:
    # Row 1: equal. Row 2: 'cat sat down' against 'cat sat' shares 2, F1 = 2*2/(3+2). Row 3: nothing shared.
    scores = score_squad(Pairs([["The Cat"], ["cat sat"], ["dog"]], ["cat.", "the cat sat down", "bird"]))
    assert scores.values["em"] == pytest.approx(100 / 3)
    assert scores.values["f1"] == pytest.approx(100 * (1 + 0.8 + 0) / 3)


def test_a_repeated_word_counts_as_often_as_it_is_in_both() -> None:
    assert score_squad(Pairs([["no no yes"]], ["no"])).values["f1"] == pytest.approx(100 * 2 / 4)


def test_the_best_reference_counts() -> None:
    scores = score_squad(Pairs([["New York City", "NYC"]], ["nyc"]))
    assert (scores.values["em"], scores.values["f1"]) == (100.0, 100.0)


def test_an_unanswerable_question_is_right_only_where_nothing_is_predicted() -> None:
    scores = score_squad(Pairs([[""], [""], ["Ada"], ["Ada"]], ["", "Bob", "Ada", ""]))
    assert scores.values == {
        "em": 50.0,
        "f1": 50.0,
        "em_answerable": 50.0,
        "f1_answerable": 50.0,
        "em_unanswerable": 50.0,
    }
    assert scores.absent == {}


@pytest.mark.parametrize(("reference", "kind"), [("Ada", "answerable"), ("", "unanswerable")])
def test_with_one_kind_of_question_the_split_scores_are_absent_with_a_reason(reference: str, kind: str) -> None:
    scores = score_squad(Pairs([[reference]], ["Bob"]))
    assert set(scores.absent) == {"em_answerable", "f1_answerable", "em_unanswerable"}
    assert f"all questions are {kind}" in scores.absent["em_answerable"]


def test_spanish_articles_and_accents_do_not_count_against_an_answer() -> None:
    pairs = ([["la ciudad de México"]], ["Ciudad de Mexico"])
    assert score_squad(Pairs(*pairs, language="es_MX")).values["em"] == 100.0
    assert score_squad(Pairs(*pairs, language="en")).values["em"] == 0.0


def test_the_signature_says_how_answers_were_normalised() -> None:
    pairs = ([["x"]], ["x"])
    assert score_squad(Pairs(*pairs)).signatures["squad"] == "squad|lang:en|norm:evaluate|rules:v1.1"
    assert "accents:folded" in score_squad(Pairs(*pairs, language="es")).signatures["squad"]
    assert "articles:kept" in score_squad(Pairs(*pairs, language="de")).signatures["squad"]
