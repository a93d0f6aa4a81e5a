"""Scores of predictions as an evaluation writes them: mappings with `references` and `prediction`. Nothing here needs
torch, so what reads a run directory can score again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.errors import RecipeError
from seqfit.metrics import Scores, available_scores, find_metric_mistakes, resampling, row_scores_of, score
from seqfit.recipe import TaskRecipe, report_mistakes, schema
from seqfit.tasks import Task


def choose_metrics(task: Task, recipe: schema.EvalRecipe) -> tuple[list[str], str]:
    """The metrics to compute, and the score that decides which checkpoint is best."""
    metrics = list(recipe.metrics or task.default_metrics)
    mistakes = find_metric_mistakes(metrics, recipe.best)
    if mistakes:
        raise RecipeError(report_mistakes("The recipe", mistakes))
    return metrics, recipe.best or (task.main_score if task.main_score in available_scores(metrics) else "loss")


def add_row_scores(predictions: list[dict[str, Any]], scores: Scores, metrics: Sequence[str]) -> None:
    names = [name for name in row_scores_of(metrics) if name in scores.values] or list(scores.values)[:1]
    of_rows = resampling.score_rows(scores.resamplers)
    for place, prediction in enumerate(predictions):
        own = {name: round(float(of_rows[name][place]), 4) for name in names if name in of_rows}
        prediction["scores"] = {name: value for name, value in own.items() if math.isfinite(value)}


def score_predictions(task: TaskRecipe, metrics: Sequence[str], predictions: Sequence[Mapping[str, Any]]) -> Scores:
    return score(
        metrics,
        [prediction["references"] for prediction in predictions],
        [prediction["prediction"] for prediction in predictions],
        language=task.language or "en",
        labels=list(task.label_values) or None,
        no_label=task.no_label,
    )
