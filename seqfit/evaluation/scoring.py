"""Scores of a model on a split: over all rows, and for each data source if there are several."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqfit.data import TokenizedSplit
from seqfit.errors import RecipeError
from seqfit.generation import Generated, GenerationProgress, Generator, generate_split
from seqfit.metrics import Scores, available_scores, find_metric_mistakes, score
from seqfit.recipe import report_mistakes, schema
from seqfit.tasks import Task


@dataclass(frozen=True)
class SplitScores:
    loss: float | None
    scores: Scores
    by_source: dict[str, Scores]  # empty if there is only one source
    predictions: list[dict[str, Any]]
    rows: int
    seconds: float


def score_split(
    generator: Generator,
    task: Task,
    split: TokenizedSplit,
    metrics: Sequence[str],
    *,
    limit: int | None = None,
    progress: GenerationProgress | None = None,
) -> SplitScores:
    """Generates for every row (or `limit` rows spread evenly over the split) and scores the predictions."""
    start = time.perf_counter()
    rows = spread_over_rows(len(split), limit)
    return score_generated(task, split, rows, generate_split(generator, split, rows, progress), metrics, started=start)


def score_generated(
    task: Task,
    split: TokenizedSplit,
    rows: NDArray[np.int64],
    generated: Generated,
    metrics: Sequence[str],
    *,
    started: float,
) -> SplitScores:
    """Scores the texts generated for some rows; `started` is when generation started, by time.perf_counter."""
    texts = zip(rows.tolist(), generated.texts, strict=True)
    predictions = [_prediction(task, split, row, text) for row, text in texts]
    by_source = {}
    if len(split.titles) > 1:
        for number, title in enumerate(split.titles):
            of_source = [predictions[i] for i in np.flatnonzero(split.source_index[rows] == number)]
            by_source[title] = _score(task, metrics, of_source)
    return SplitScores(
        loss=generated.loss,
        scores=_score(task, metrics, predictions),
        by_source=by_source,
        predictions=predictions,
        rows=len(rows),
        seconds=time.perf_counter() - started,
    )


def choose_metrics(task: Task, recipe: schema.EvalRecipe) -> tuple[list[str], str]:
    """The metrics to compute, and the score that decides which checkpoint is best."""
    metrics = list(recipe.metrics or task.default_metrics)
    mistakes = find_metric_mistakes(metrics, recipe.best)
    if mistakes:
        raise RecipeError(report_mistakes("The recipe", mistakes))
    return metrics, recipe.best or (task.main_score if task.main_score in available_scores(metrics) else "loss")


def spread_over_rows(rows: int, limit: int | None) -> NDArray[np.int64]:
    if limit is None or limit >= rows:
        return np.arange(rows, dtype=np.int64)
    return np.linspace(0, rows - 1, limit).round().astype(np.int64)


def _prediction(task: Task, split: TokenizedSplit, row: int, generated: str) -> dict[str, Any]:
    example = split.text(row)
    prediction = {
        "id": example.id,
        "source": example.source,
        "prediction": task.extract(generated, example.choices),
        "references": list(example.references),
    }
    if prediction["prediction"] != generated:
        prediction["generated"] = generated
    if len(split.titles) > 1:
        prediction["data"] = split.titles[int(split.source_index[row])]
    return prediction


def _score(task: Task, metrics: Sequence[str], predictions: list[dict[str, Any]]) -> Scores:
    return score(
        metrics,
        [prediction["references"] for prediction in predictions],
        [prediction["prediction"] for prediction in predictions],
        language=task.recipe.language or "en",
        labels=list(task.recipe.label_values) or None,
        no_label=task.recipe.no_label,
    )
