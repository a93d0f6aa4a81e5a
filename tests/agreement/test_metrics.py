"""Our scores must equal those of the reference implementations, called directly (to 1e-9)."""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from seqfit.metrics import score

WORDS = ["the", "a", "cat", "Cats", "jumped", "jumping", "U.S.", "3,000", "it's", "on", "an", "mat!", "(x)", "café"]


def _texts(count: int, seed: int, shortest: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(shortest, 14))) for _ in range(count)]


def _official_squad(references: list[list[str]], predictions: list[str]) -> dict[str, float]:
    """SQuAD's evaluate-v2.0, step by step as that script goes."""

    def normalized(text: str) -> str:
        text = "".join(char for char in text.lower() if char not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    def f1(gold: str, said: str) -> float:
        gold_words, said_words = normalized(gold).split(), normalized(said).split()
        if not gold_words or not said_words:
            return float(gold_words == said_words)
        same = sum((Counter(gold_words) & Counter(said_words)).values())
        if same == 0:
            return 0.0
        precision, recall = same / len(said_words), same / len(gold_words)
        return 2 * precision * recall / (precision + recall)

    exact, overlap, has_answer = [], [], []
    for golds, said in zip(references, predictions, strict=True):
        kept = [gold for gold in golds if normalized(gold)] or [""]
        exact.append(max(float(normalized(gold) == normalized(said)) for gold in kept))
        overlap.append(max(f1(gold, said) for gold in kept))
        has_answer.append(golds != [""])

    def mean(values: list[float], kind: bool | None = None) -> float:
        chosen = [value for value, has in zip(values, has_answer, strict=True) if kind is None or has == kind]
        return 100 * sum(chosen) / len(chosen)

    return {
        "em": mean(exact),
        "f1": mean(overlap),
        "em_answerable": mean(exact, True),
        "f1_answerable": mean(overlap, True),
        "em_unanswerable": mean(exact, False),
    }


def test_squad_equals_the_official_script_on_real_questions(shared_data: Path) -> None:
    articles = json.loads((shared_data / "squad_en" / "dev-v2.0.half.json").read_text(encoding="utf-8"))["data"]
    questions = [
        question for article in articles for paragraph in article["paragraphs"] for question in paragraph["qas"]
    ]
    references = [[answer["text"] for answer in question["answers"]] or [""] for question in questions]
    chance = random.Random(0)
    kinds = [
        lambda gold: gold,
        lambda gold: "The " + gold + " x.",
        lambda gold: gold[: len(gold) // 2],
        lambda gold: "",
    ]
    predictions = [chance.choice(kinds)(chance.choice(golds)) for golds in references]
    assert score(["squad"], references, predictions).values == pytest.approx(
        _official_squad(references, predictions), abs=1e-9
    )


def test_squad_equals_the_official_script_on_odd_answers() -> None:
    references = [["the"], [""], ["A.", "an ox"], ["U.S."], [""], ["..."]]
    predictions = ["", "the", "ox", "us", "an ox", "!"]
    assert score(["squad"], references, predictions).values == pytest.approx(
        _official_squad(references, predictions), abs=1e-9
    )


def test_rouge_equals_rouge_score_with_its_best_reference() -> None:
    predictions = _texts(40, seed=1)
    references = [list(pair) for pair in zip(_texts(40, seed=2), _texts(40, seed=3), strict=True)]
    values = score(["rouge"], references, predictions).values
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    rows = [scorer.score_multi(texts, said) for texts, said in zip(references, predictions, strict=True)]
    for kind in ("rouge1", "rouge2", "rougeL"):
        assert values[f"{kind}_precision"] == pytest.approx(100 * sum(row[kind].precision for row in rows) / 40)
        assert values[f"{kind}_recall"] == pytest.approx(100 * sum(row[kind].recall for row in rows) / 40)
        assert values[f"{kind}_f1"] == pytest.approx(100 * sum(row[kind].fmeasure for row in rows) / 40)


def test_rouge_lsum_equals_rouge_score_with_one_sentence_a_line() -> None:
    reference, prediction = ["A cat sat. It slept!", "Why?"], ["It slept! A dog sat."]
    expected = RougeScorer(["rougeLsum"], use_stemmer=True).score(
        "A cat sat.\nIt slept!\nWhy?", "It slept!\nA dog sat."
    )
    values = score(["rouge"], [[" ".join(reference)]], [" ".join(prediction)]).values
    assert values["rougeLsum_f1"] == pytest.approx(100 * expected["rougeLsum"].fmeasure)


def test_bleu_and_chrf_equal_sacrebleu() -> None:
    predictions, first, second = _texts(40, seed=4), _texts(40, seed=5, shortest=1), _texts(40, seed=6, shortest=1)
    references = [list(pair) for pair in zip(first, second, strict=True)]
    values = score(["bleu", "chrf"], references, predictions, language="de").values
    assert values["bleu"] == pytest.approx(sacrebleu.corpus_bleu(predictions, [first, second]).score, abs=1e-9)
    assert values["chrf"] == pytest.approx(sacrebleu.corpus_chrf(predictions, [first, second]).score, abs=1e-9)


def test_a_missing_reference_is_not_scored_as_an_empty_one() -> None:
    """A repeated reference changes nothing in BLEU and chrF, so it is the measure for a missing one."""
    predictions, first, second = _texts(20, seed=7, shortest=4), _texts(20, seed=8, shortest=4), _texts(20, seed=9)
    varied = [[a, b] if index % 2 else [a] for index, (a, b) in enumerate(zip(first, second, strict=True))]
    filled = [[a, b] if index % 2 else [a, a] for index, (a, b) in enumerate(zip(first, second, strict=True))]
    assert score(["bleu", "chrf"], varied, predictions).values == pytest.approx(
        score(["bleu", "chrf"], filled, predictions).values, abs=1e-9
    )


def test_accuracy_and_macro_f1_equal_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    chance = random.Random(10)
    labels = ["world", "sports", "business", "never"]
    wanted, said = chance.choices(labels[:3], k=60), chance.choices([*labels[:3], "nonsense"], k=60)
    values = score(["accuracy", "macro_f1"], [[word] for word in wanted], said, labels=labels).values
    assert values["accuracy"] == pytest.approx(100 * sklearn.accuracy_score(wanted, said))
    assert values["macro_f1"] == pytest.approx(100 * sklearn.f1_score(wanted, said, labels=labels[:3], average="macro"))
