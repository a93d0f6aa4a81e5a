"""All metrics by name: references and predictions come in, the scores of the chosen metrics go out.

    score(["squad"], references=[["Ada", "Ada L."]], predictions=["ada"]).values == {"em": 100.0, "f1": 100.0}

A metric (squad) has one or more scores (em, f1, ...). After scoring, each of them is in `values`, or in `absent` with
the reason. Libraries are imported by the metric that needs them. `find_metric_mistakes` checks a recipe's eval.metrics
and eval.best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from seqfit.errors import DataError, RecipeError, did_you_mean, format_error
from seqfit.metrics import labels_and_numbers as values
from seqfit.metrics import texts
from seqfit.metrics.own import build_own_metric, load_own_metric, try_own_metric
from seqfit.metrics.scores import Pairs, Scores
from seqfit.own_functions import is_own_function
from seqfit.recipe import Mistake


@dataclass(frozen=True, slots=True)
class _Metric:
    compute: Callable[[Pairs], Scores]
    scores: tuple[str, ...]
    of_row: tuple[str, ...] | None = ()  # of its scores those that say how good a single row is; None: all


_METRICS = {
    "squad": _Metric(texts.score_squad, texts.SQUAD_SCORES, ("f1", "em")),
    "rouge": _Metric(texts.score_rouge, texts.NGRAM_SCORES, ("rougeL_f1", "rouge1_f1", "rouge2_f1")),
    "bleu": _Metric(texts.score_bleu, ("bleu",)),
    "chrf": _Metric(texts.score_chrf, ("chrf",), None),
    "accuracy": _Metric(values.score_accuracy, ("accuracy",), None),
    "macro_f1": _Metric(values.score_macro_f1, ("macro_f1",)),
    "micro_f1": _Metric(values.score_micro_f1, ("micro_f1",), None),
    "subset_accuracy": _Metric(values.score_subset_accuracy, ("subset_accuracy",), None),
    "exact_match": _Metric(values.score_exact_match, ("exact_match",), None),
    "numeric": _Metric(values.score_numeric, ("numeric_em",), None),
    "regression": _Metric(values.score_regression, values.REGRESSION_SCORES, ("mae",)),
}
_METRIC_OF_SCORE = {score_name: name for name, metric in _METRICS.items() for score_name in metric.scores}
_own_scores: set[str] = set()  # of a user's own metrics, as far as they were loaded
_LOWER_IS_BETTER = ("loss", "rmse", "mae", "unparsable")
_IN_OWN_UNIT = ("loss", "rmse", "mae")  # not in per cent


def score(
    metrics: Sequence[str],
    references: Sequence[Sequence[str]],
    predictions: Sequence[str],
    *,
    language: str = "en",
    labels: Sequence[str] | None = None,
    no_label: str | None = None,
) -> Scores:
    """All scores of these metrics. macro-F1 is the mean over `labels`; if a row may have several, `no_label` is the
    text of a row that has none."""
    chosen = {name: _metric(name) for name in metrics}
    if not predictions and not references:
        names = [score_name for metric in chosen.values() for score_name in metric.scores]
        return Scores(absent=dict.fromkeys(names, "there are no rows to score"))
    if len(references) != len(predictions):
        raise DataError(
            f"There are {len(references)} rows of references and {len(predictions)} predictions",
            "Each row needs one prediction",
            "Score predictions with the data set that they were made for",
        )
    for index, row in enumerate(references):
        if not row:
            raise DataError(
                f"Row {index} has no reference",
                "A row is scored against at least one reference ('' for a question without an answer)",
                "Add a reference, or leave the row out",
            )
    pairs = Pairs(references, predictions, language, labels, no_label)
    return reduce(Scores.joined, (metric.compute(pairs) for metric in chosen.values()), Scores())


def known_metrics() -> tuple[str, ...]:
    return tuple(_METRICS)


def scores_of(metric: str) -> tuple[str, ...]:
    """The names of a metric's scores: squad -> em, f1, ..."""
    return _metric(metric).scores


def row_scores_of(metrics: Sequence[str]) -> list[str]:
    """Those scores of the metrics that say how good a single row is, the most telling first: ['f1', 'em']."""
    chosen = [(_metric(name).of_row, _metric(name).scores) for name in metrics]
    return [name for of_row, scores in chosen for name in (scores if of_row is None else of_row)]


def metric_of_score(score_name: str) -> str | None:
    """The metric that has this score: f1 -> squad."""
    return _METRIC_OF_SCORE.get(score_name)


def higher_is_better(score_name: str) -> bool:
    """False for the loss and errors, True for all other scores, a user's own included; others are a RecipeError."""
    if score_name in _LOWER_IS_BETTER:
        return False
    if score_name in _METRIC_OF_SCORE or score_name in _own_scores:
        return True
    known = (*_METRIC_OF_SCORE, "loss")
    raise RecipeError(
        f"'{score_name}' is not a score",
        f"Scores are {', '.join(known)}",
        f"Name one of them.{did_you_mean(score_name, known)}",
    )


def format_score(score_name: str, value: float) -> str:
    """With two decimals, or three for scores with a unit of their own: accuracy 91.25, rmse 0.083."""
    return f"{value:.3f}" if is_in_own_unit(score_name) else f"{value:.2f}"


def is_in_own_unit(score_name: str) -> bool:
    """Not in per cent: the loss, errors, and the scores of a user's own metrics."""
    return score_name in _IN_OWN_UNIT or score_name not in _METRIC_OF_SCORE


def own_score_names(metrics: Sequence[str]) -> list[str]:
    """Of a user's own metrics."""
    return [name for metric in metrics if is_own_function(metric) for name in scores_of(metric)]


def check_own_metrics(metrics: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Tries those of a user on a few rows; a RecipeError says what is wrong."""
    for name in metrics:
        if is_own_function(name):
            try_own_metric(load_own_metric(name), references)


def _metric(name: str) -> _Metric:
    if name in _METRICS:
        return _METRICS[name]
    if is_own_function(name):
        own = load_own_metric(name)
        if own.name in _METRIC_OF_SCORE or own.name in (*_METRICS, "loss"):
            raise RecipeError(
                f"eval.metrics names '{name}'",
                f"'{own.name}' is a name of seqfit's own metrics and scores",
                "Rename the function",
            )
        _own_scores.add(own.name)
        return _Metric(build_own_metric(own), (own.name,), of_row=None)
    hint = did_you_mean(name, _METRICS)
    if name in _METRIC_OF_SCORE:
        hint = f" '{name}' is a score of '{_METRIC_OF_SCORE[name]}'."
    rule = f"Metrics are {', '.join(_METRICS)}, and functions of your own, my_metrics.py:fuzzy_match"
    raise RecipeError(f"eval.metrics names '{name}'", rule, f"Name one of them.{hint}")


def available_scores(metrics: Sequence[str]) -> list[str]:
    """The loss, and the scores of these metrics: ['squad'] -> ['loss', 'em', 'f1', ...]."""
    return ["loss", *(name for metric in metrics for name in scores_of(metric))]


def find_metric_mistakes(metrics: Sequence[str], best: str | None) -> list[Mistake]:
    """Unknown metrics, and a `best` that is not one of their scores (None: the default)."""
    mistakes: list[Mistake] = []
    known: list[str] = []
    for metric in metrics:
        try:
            scores_of(metric)
            known.append(metric)
        except RecipeError as error:
            mistakes.append(Mistake(("eval", "metrics"), str(error)))
    available = available_scores(known)
    # With a misspelt metric it is not known whether `best` is one of its scores.
    if best is not None and best not in available and len(known) == len(metrics):
        home = metric_of_score(best)
        change = (
            f"Choose one of them, or set eval.metrics=[{', '.join([*metrics, home])}]" if home else "Choose one of them"
        )
        sentence = format_error(
            f"'{best}' is given",
            f"It must be one of the scores of eval.metrics: {', '.join(available)}",
            f"{change}.{did_you_mean(best, available)}",
        )
        mistakes.append(Mistake(("eval", "best"), sentence))
    return mistakes
