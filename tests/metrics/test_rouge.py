from __future__ import annotations

import subprocess
import sys

import pytest

from seqfit.metrics.scores import Pairs
from seqfit.metrics.texts import NGRAM_SCORES, EnglishTokenizer, UnicodeTokenizer, score_rouge, split_sentences


def test_rouge_has_the_values_computed_by_hand() -> None:
    # Reference 'the cat sat on the mat' (6 words), prediction 'the cat sat' (3): all 3 shared and in order,
    # 2 of 2 bigrams shared of 5.
    values = score_rouge(Pairs([["the cat sat on the mat"]], ["the cat sat"])).values
    assert values["rouge1_precision"] == pytest.approx(100.0)
    assert values["rouge1_recall"] == pytest.approx(50.0)
    assert values["rouge1_f1"] == pytest.approx(100 * 2 / 3)
    assert values["rouge2_recall"] == pytest.approx(40.0)
    assert values["rougeL_f1"] == pytest.approx(100 * 2 / 3)


def test_every_score_is_given() -> None:
    assert tuple(score_rouge(Pairs([["a"]], ["b"])).values) == NGRAM_SCORES
    assert "rougeL_precision" in NGRAM_SCORES
    assert "rougeLsum_f1" in NGRAM_SCORES


def test_english_words_are_stemmed() -> None:
    assert EnglishTokenizer().tokenize("Dogs jumped, año.") == ["dog", "jump", "a", "o"]
    assert score_rouge(Pairs([["jumping dogs"]], ["jumped dog"])).values["rouge1_f1"] == pytest.approx(100.0)
    other = score_rouge(Pairs([["jumping dogs"]], ["jumped dog"], language="de"))
    assert other.values["rouge1_f1"] == 0.0


def test_the_best_reference_counts_for_each_kind_by_itself() -> None:
    # 'b a' shares both words with the first but no order; 'b a c d e f' has the bigram.
    values = score_rouge(Pairs([["a b", "b a c d e f"]], ["b a"])).values
    assert values["rouge1_f1"] == pytest.approx(100.0)
    assert values["rouge2_recall"] == pytest.approx(20.0)


def test_lsum_ignores_the_order_of_sentences_and_l_does_not() -> None:
    reference, prediction = "The cat slept. A dog barked.", "A dog barked. The cat slept."
    values = score_rouge(Pairs([[reference]], [prediction])).values
    assert values["rougeLsum_f1"] == pytest.approx(100.0)
    assert values["rougeL_f1"] == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('He left. "Why?" Nobody knew.', ["He left.", '"Why?"', "Nobody knew."]),
        ("One 3.5 litre jug.\n\nTwo", ["One 3.5 litre jug.", "Two"]),
        ("雨が降る。「本当？」はい", ["雨が降る。", "「本当？」", "はい"]),
        ("", []),
    ],
)
def test_sentences_are_split_by_punctuation(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("El año 2024, ¿no?", ["el", "año", "2024", "no"]),
        ("snake_case", ["snake", "case"]),
        ("Привет, мир", ["привет", "мир"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("AI入門", ["ai", "入", "門"]),
        ("an\u0303o", ["año"]),
    ],
)
def test_other_languages_keep_their_letters(text: str, words: list[str]) -> None:
    assert UnicodeTokenizer().tokenize(text) == words


def test_a_russian_copy_scores_100_where_the_english_tokenizer_sees_nothing() -> None:
    pairs = ([["Привет, мир"]], ["привет мир"])
    assert score_rouge(Pairs(*pairs, language="ru")).values["rougeL_f1"] == pytest.approx(100.0)
    assert score_rouge(Pairs(*pairs, language="en")).values["rougeL_f1"] == 0.0


def test_an_empty_prediction_scores_0() -> None:
    assert set(score_rouge(Pairs([["a cat"]], [""])).values.values()) == {0.0}


def test_scoring_in_a_fresh_process_gives_no_warning_and_opens_no_connection() -> None:
    code = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise AssertionError('a connection was opened')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "from seqfit.metrics import score\n"
        "print(score(['rouge', 'bleu', 'chrf'], [['One. Two three four.']], ['One. Two three four.']).values['bleu'])\n"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert float(result.stdout) == pytest.approx(100.0)
