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
from seqfit.metrics.classes import score_classes
from seqfit.metrics.confidences import find_no_answer_threshold

WORDS = ["the", "a", "cat", "Cats", "jumped", "jumping", "U.S.", "3,000", "it's", "on", "an", "mat!", "(x)", "café"]


def _texts(count: int, seed: int, shortest: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(shortest, 14))) for _ in range(count)]


def _normalized(text: str) -> str:
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _shared_f1(gold_words: list[str], said_words: list[str]) -> float:
    same = sum((Counter(gold_words) & Counter(said_words)).values())
    if same == 0:
        return 0.0
    precision, recall = 1.0 * same / len(said_words), 1.0 * same / len(gold_words)
    return (2 * precision * recall) / (precision + recall)


def _official_v1(references: list[list[str]], predictions: list[str]) -> dict[str, float]:
    """SQuAD's evaluate-v1.1: every ground truth counts, and two texts of which nothing is left have F1 0."""
    exact, overlap = 0.0, 0.0
    for golds, said in zip(references, predictions, strict=True):
        exact += max(_normalized(said) == _normalized(gold) for gold in golds)
        overlap += max(_shared_f1(_normalized(gold).split(), _normalized(said).split()) for gold in golds)
    return {"em": 100.0 * exact / len(references), "f1": 100.0 * overlap / len(references)}


def _v2_rows(references: list[list[str]], predictions: list[str]) -> tuple[list[float], list[float], list[bool]]:
    """EM and F1 of each question by SQuAD's evaluate-v2.0, and whether it has an answer."""
    exact, overlap = [], []
    for golds, said in zip(references, predictions, strict=True):
        kept = [gold for gold in golds if _normalized(gold)] or [""]
        exact.append(max(float(_normalized(gold) == _normalized(said)) for gold in kept))
        scores = []
        for gold in kept:
            gold_words, said_words = _normalized(gold).split(), _normalized(said).split()
            is_empty = not gold_words or not said_words
            scores.append(float(gold_words == said_words) if is_empty else _shared_f1(gold_words, said_words))
        overlap.append(max(scores))
    return exact, overlap, [golds != [""] for golds in references]


def _official_squad(references: list[list[str]], predictions: list[str]) -> dict[str, float]:
    """SQuAD's evaluate-v2.0, step by step as that script goes."""
    exact, overlap, has_answer = _v2_rows(references, predictions)

    def mean(values: list[float], kind: bool | None = None) -> float:
        chosen = [value for value, has in zip(values, has_answer, strict=True) if kind is None or has == kind]
        return 100.0 * sum(chosen) / len(chosen)

    return {
        "em": mean(exact),
        "f1": mean(overlap),
        "em_answerable": mean(exact, True),
        "f1_answerable": mean(overlap, True),
        "em_unanswerable": mean(exact, False),
    }


def _official_best_threshold(
    predictions: list[str], scores: list[float], no_answer: list[float], has_answer: list[bool]
) -> tuple[float, float]:
    """evaluate-v2.0's search: everything unanswered, then one question after the other by its probability."""
    current = float(sum(1 for has in has_answer if not has))
    best, threshold = current, 0.0
    for row in sorted(range(len(scores)), key=lambda number: no_answer[number]):
        of_no_answer = -1 if predictions[row] else 0
        current += scores[row] if has_answer[row] else of_no_answer
        if current > best:
            best, threshold = current, no_answer[row]
    return 100.0 * best / len(scores), threshold


def _generated_answers(rows: int, *, with_unanswerable: bool) -> tuple[list[list[str]], list[str]]:
    """Articles, punctuation, case, several references, references of which nothing is left, empty answers."""
    chance = random.Random(rows + with_unanswerable)
    pieces = [
        *WORDS,
        "The",
        "AN",
        "a",
        "?",
        "...",
        "U.S.A.",
        "1,000",
        "'s",
        "theatre",
        "¿qué",
        "naïve",
        "–",
        "New",
        "York",
    ]

    def text(longest: int) -> str:
        return " ".join(chance.choices(pieces, k=chance.randint(1, longest)))

    references, predictions = [], []
    for _ in range(rows):
        golds = [text(5) for _ in range(chance.randint(1, 4))]
        if with_unanswerable and chance.random() < 0.4:
            golds = [""]
        gold = chance.choice(golds)
        kinds = [
            gold,
            f"the {gold}.",
            gold.upper(),
            gold[: len(gold) // 2],
            text(6),
            "",
            f"({gold})",
            "a",
            f"{gold} {gold}",
        ]
        references.append(golds)
        predictions.append(chance.choice(kinds))
    return references, predictions


def test_squad_v1_equals_the_official_script_to_the_last_digit_on_5000_predictions() -> None:
    references, predictions = _generated_answers(5000, with_unanswerable=False)
    scores = score(["squad"], references, predictions)
    assert scores.values == pytest.approx(_official_v1(references, predictions), rel=1e-15)
    assert scores.signatures["squad"].endswith("rules:v1.1")
    nothing_left = [not _normalized(gold) for golds in references for gold in golds]
    assert sum(nothing_left) > 100  # otherwise both scripts would agree


def test_squad_v2_equals_the_official_script_to_the_last_digit_on_5000_predictions() -> None:
    references, predictions = _generated_answers(5000, with_unanswerable=True)
    scores = score(["squad"], references, predictions)
    assert scores.values == pytest.approx(_official_squad(references, predictions), rel=1e-15)
    assert scores.signatures["squad"].endswith("rules:v2.0")
    assert scores.values["em"] != _official_v1(references, predictions)["em"]


@pytest.mark.parametrize("measure", ["em", "f1"])
def test_the_no_answer_threshold_is_that_of_the_official_script(measure: str) -> None:
    references, predictions = _generated_answers(5000, with_unanswerable=True)
    exact, overlap, has_answer = _v2_rows(references, predictions)
    scores = exact if measure == "em" else overlap
    chance = random.Random(9)
    no_answer = [round(chance.random() * (0.7 if has else 1.0), 2) for has in has_answer]  # with ties
    best, threshold = _official_best_threshold(predictions, scores, no_answer, has_answer)
    found = find_no_answer_threshold(scores, [bool(said) for said in predictions], has_answer, no_answer)
    assert (found.score, found.threshold) == (pytest.approx(best, rel=1e-15), threshold)
    assert best > 100.0 * has_answer.count(False) / len(scores)  # of leaving all unanswered


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


def test_precision_recall_f1_and_confusion_of_classes_equal_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    chance = random.Random(11)
    labels = ["World", "Sports", "Business"]
    wanted, said = chance.choices(labels, k=200), chance.choices([*labels, "nonsense"], k=200)
    report = score_classes([[word] for word in wanted], [word.upper() for word in said], labels)
    expected = sklearn.precision_recall_fscore_support(wanted, said, labels=labels)
    found = [(one.precision, one.recall, one.f1, one.rows) for one in report.classes]
    for one, (precision, recall, f1, rows) in zip(found, zip(*expected, strict=True), strict=True):
        assert one == pytest.approx((100 * precision, 100 * recall, 100 * f1, rows))
    matrix = sklearn.confusion_matrix(wanted, said, labels=[*labels, "nonsense"])
    assert report.confusion == matrix[:3].tolist()
