"""Resamplers give the score itself for all rows; intervals and p agree with what others compute."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from seqfit.metrics import known_metrics, score
from seqfit.metrics.resampling import compare_systems, draw_counts, find_intervals, score_rows
from seqfit.metrics.scores import Scores

WORDS = ["the", "cat", "dog", "sat", "on", "a", "mat", "jumped", "high", "today"]
ROWS = 60


def _texts(seed: int, rows: int = ROWS) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(5, 12))) for _ in range(rows)]


def _altered(texts: list[str], share: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) if chance.random() < share else w for w in text.split()) for text in texts]


def _made(metric: str, seed: int = 0) -> tuple[list[list[str]], list[str]]:
    chance = random.Random(seed)
    if metric in ("numeric", "regression"):
        wanted = [chance.randrange(8) for _ in range(ROWS)]
        return [[str(n)] for n in wanted], [str(n + chance.choice([0, 0, 1, -2])) for n in wanted[:-3]] + ["x"] * 3
    if metric in ("accuracy", "macro_f1", "micro_f1", "subset_accuracy", "exact_match"):
        return [[chance.choice("abc")] for _ in range(ROWS)], [chance.choice("abcd") for _ in range(ROWS)]
    references = _texts(seed)
    answers = _altered(references, 0.3, seed + 1)
    return [[text] if row % 5 else [""] for row, text in enumerate(references)], answers


def _scores(metric: str, seed: int = 0) -> Scores:
    references, predictions = _made(metric, seed)
    return score([metric], references, predictions)


@pytest.mark.parametrize("metric", known_metrics())
def test_all_rows_drawn_once_give_the_score_itself(metric: str) -> None:
    scores = _scores(metric)
    (resampler,) = scores.resamplers
    found = {name: float(values[0]) for name, values in resampler(np.ones((1, ROWS))).items()}
    assert found == pytest.approx(scores.values, abs=1e-9)


@pytest.mark.parametrize("metric", known_metrics())
def test_a_sample_scores_as_its_rows_written_out(metric: str) -> None:
    references, predictions = _made(metric)
    (counts,) = draw_counts(ROWS, samples=3, seed=5)
    (resampler,) = score([metric], references, predictions).resamplers
    resampled = resampler(counts)
    for number, row_counts in enumerate(counts.astype(int)):
        rows = np.repeat(np.arange(ROWS), row_counts).tolist()
        expected = score([metric], [references[row] for row in rows], [predictions[row] for row in rows]).values
        found = {name: float(values[number]) for name, values in resampled.items()}
        assert found == pytest.approx({name: expected[name] for name in found}, abs=1e-9)


def test_p_of_bleu_and_chrf_equals_sacrebleu() -> None:
    references = _texts(1, 120)
    first, second = _altered(references, 0.30, 2), _altered(references, 0.26, 3)
    metrics = {"BLEU": BLEU(), "chrF": CHRF()}
    _, results = PairedTest([("a", first), ("b", second)], metrics, [references], test_type="bs", n_samples=1000)()
    columns = [[text] for text in references]
    ours = [score(["bleu", "chrf"], columns, texts).resamplers for texts in (first, second)]
    found = compare_systems(*ours, rows=120)
    assert found["bleu"].p == results["BLEU"][1].p_value
    assert found["chrf"].p == results["chrF2"][1].p_value
    assert found["bleu"].difference == pytest.approx(results["BLEU"][1].score - results["BLEU"][0].score, abs=1e-9)


def test_an_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    chance = random.Random(4)
    right = [chance.random() < 0.7 for _ in range(2000)]
    scores = score(["accuracy"], [["yes"]] * 2000, ["yes" if one else "no" for one in right])
    interval = find_intervals(scores.resamplers, 2000, scores.values)["accuracy"]
    value = scores.values["accuracy"]
    half = 1.96 * (value * (100 - value) / 2000) ** 0.5
    assert interval.low == pytest.approx(value - half, abs=0.25)
    assert interval.high == pytest.approx(value + half, abs=0.25)


def test_intervals_are_the_same_every_time_and_those_of_every_score() -> None:
    for metric in known_metrics():
        scores = _scores(metric)
        found = find_intervals(scores.resamplers, ROWS, scores.values)
        assert set(found) == set(scores.values)
        assert found == find_intervals(scores.resamplers, ROWS, scores.values)
        assert all(found[name].low <= scores.values[name] <= found[name].high for name in found)


@pytest.mark.parametrize(("prediction", "low", "high"), [("yes", 92.8878, 100.0), ("no", 0.0, 7.1122)])
def test_rows_that_are_all_right_or_all_wrong_have_the_binomial_interval(
    prediction: str, low: float, high: float
) -> None:
    scores = score(["accuracy"], [["yes"]] * 50, [prediction] * 50)
    interval = find_intervals(scores.resamplers, 50, scores.values)["accuracy"]
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_the_same_system_twice_differs_by_nothing() -> None:
    resamplers = _scores("squad").resamplers
    for found in compare_systems(resamplers, resamplers, ROWS).values():
        assert found.difference == 0.0
        assert found.p == 1.0


def test_a_row_alone_has_its_own_scores() -> None:
    references, predictions = [["b q"], ["c"]], ["b x", "c"]
    rows = score_rows(score(["squad"], references, predictions).resamplers)
    assert rows["f1"].tolist() == pytest.approx([score(["squad"], [["b q"]], ["b x"]).values["f1"], 100.0])
    errors = score_rows(score(["regression"], [["1"], ["3"], ["1"]], ["2", "3", "x"]).resamplers)["mae"]
    assert errors[:2].tolist() == [1.0, 0.0]
    assert np.isnan(errors[2])
