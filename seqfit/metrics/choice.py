"""Which scores a recipe may choose by: the metrics it asks for and `eval.best` come in, every mistake goes out."""

from __future__ import annotations

from collections.abc import Sequence

from seqfit.errors import RecipeError, complain, did_you_mean
from seqfit.metrics.registry import metric_of_score, scores_of
from seqfit.recipe.mistakes import Mistake


def available_scores(metrics: Sequence[str]) -> list[str]:
    """The loss, and the scores of these metrics: ['squad'] -> ['loss', 'em', 'f1', ...]."""
    return ["loss", *(name for metric in metrics for name in scores_of(metric))]


def find_metric_mistakes(metrics: Sequence[str], best: str | None) -> list[Mistake]:
    """Metrics that there are not, and a `best` that is none of their scores (None: the default, which always is)."""
    mistakes: list[Mistake] = []
    known: list[str] = []
    for metric in metrics:
        try:
            scores_of(metric)
            known.append(metric)
        except RecipeError as error:
            mistakes.append((("eval", "metrics"), str(error)))
    available = available_scores(known)
    # A score of a metric that is misspelt cannot be told from one that is missing.
    if best is not None and best not in available and len(known) == len(metrics):
        home = metric_of_score(best)
        change = (
            f"Choose one of them, or set eval.metrics=[{', '.join([*metrics, home])}]" if home else "Choose one of them"
        )
        sentence = complain(
            f"'{best}' is given",
            f"it must be one of the scores of eval.metrics: {', '.join(available)}",
            f"{change}.{did_you_mean(best, available)}",
        )
        mistakes.append((("eval", "best"), sentence))
    return mistakes
