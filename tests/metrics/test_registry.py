from __future__ import annotations

import random
import subprocess
import sys

import pytest

from seqfit.errors import DataError, RecipeError
from seqfit.metrics import higher_is_better, known_metrics, score, scores_of


def test_all_chosen_metrics_are_scored_together() -> None:
    scores = score(["squad", "accuracy"], [["Ada"], ["Bob"]], ["Ada", "Ada"])
    assert scores.values == {"em": 50.0, "f1": 50.0, "accuracy": 50.0}
    assert set(scores.signatures) == {"squad"}


@pytest.mark.parametrize("metric", known_metrics())
def test_every_score_of_a_metric_is_a_value_or_absent_with_a_reason(metric: str) -> None:
    for references, predictions in ([["7"]], ["7"]), ([[""], ["a b c d"]], ["", "x"]), ([["-1", "2"]], [""]):
        scores = score([metric], references, predictions)
        assert {*scores.values, *scores.absent} == set(scores_of(metric))
        assert not {*scores.values} & {*scores.absent}
        assert all(scores.absent.values())


@pytest.mark.parametrize("metric", known_metrics())
def test_without_rows_every_score_is_absent(metric: str) -> None:
    scores = score([metric], [], [])
    assert scores.values == {}
    assert scores.absent == dict.fromkeys(scores_of(metric), "there are no rows to score")


@pytest.mark.parametrize("language", ["en", "es", "de"])
def test_scores_lie_between_0_and_100_and_a_copy_reaches_100(language: str) -> None:
    chance = random.Random(0)
    words = ["the", "la", "año", "Él", "cat", "17", "sat.", "down,", "México"]
    references = [[" ".join(chance.choices(words, k=8))] for _ in range(30)]
    predictions = [" ".join(chance.choices(words, k=chance.randrange(12))) for _ in references]
    metrics = [metric for metric in known_metrics() if metric != "numeric"]
    values = score(metrics, references, predictions, language=language).values
    assert all(0.0 <= value <= 100.0 for value in values.values())
    copied = score(metrics, references, [texts[0] for texts in references], language=language).values
    assert copied == pytest.approx(dict.fromkeys(copied, 100.0))


def test_the_order_of_rows_does_not_matter() -> None:
    references = [["a cat sat here"], ["dogs bark at night"], ["birds"]]
    predictions = ["a cat sat there", "dogs bark", "birds"]
    metrics = ["squad", "rouge", "bleu", "chrf", "accuracy", "macro_f1"]
    forward = score(metrics, references, predictions).values
    assert score(metrics, references[::-1], predictions[::-1]).values == pytest.approx(forward)


def test_an_unknown_metric_is_an_error_with_the_closest() -> None:
    with pytest.raises(RecipeError, match=r"eval\.metrics names 'rogue'.*Did you mean 'rouge'\?"):
        score(["rogue"], [["a"]], ["a"])
    with pytest.raises(RecipeError, match="'em' is a score of 'squad'"):
        scores_of("em")


def test_only_the_loss_and_errors_are_better_when_lower() -> None:
    scores = ["loss", *(name for metric in known_metrics() for name in scores_of(metric))]
    assert [name for name in scores if not higher_is_better(name)] == ["loss", "rmse", "mae", "unparsable"]
    with pytest.raises(RecipeError, match=r"Did you mean 'rougeL_f1'\?"):
        higher_is_better("rougel_f1")


def test_rows_and_predictions_must_pair_up() -> None:
    with pytest.raises(DataError, match="2 rows of references and 1 predictions"):
        score(["squad"], [["a"], ["b"]], ["a"])
    with pytest.raises(DataError, match="Row 1 has no reference"):
        score(["squad"], [["a"], []], ["a", "b"])


def test_no_heavy_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, seqfit.metrics, seqfit.tasks\n"
        "heavy = {'torch', 'transformers', 'datasets', 'numpy', 'nltk', 'rouge_score', 'sacrebleu'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
