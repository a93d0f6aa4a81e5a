"""Scores of a model on a split, with their 95% confidence intervals: over all rows, and for each data source if there
are several. Each prediction carries the scores of its own row, and its confidence where the model gives one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqfit.data import TokenizedSplit
from seqfit.evaluation.predictions import add_row_scores, score_predictions
from seqfit.generation import Generated, GenerationProgress, Generator, generate_split
from seqfit.metrics import Scores, resampling
from seqfit.tasks import Task


@dataclass(frozen=True)
class SplitScores:
    loss: float | None
    scores: Scores
    by_source: dict[str, Scores]  # empty if there is only one source
    predictions: list[dict[str, Any]]
    rows: int
    seconds: float
    intervals: dict[str, resampling.ScoreInterval] = field(default_factory=dict)
    intervals_by_source: dict[str, dict[str, resampling.ScoreInterval]] = field(default_factory=dict)

    def list_intervals(self) -> dict[str, list[float]]:
        return list_bounds(self.intervals)


def list_bounds(intervals: Mapping[str, resampling.ScoreInterval]) -> dict[str, list[float]]:
    return {name: [interval.low, interval.high] for name, interval in intervals.items()}


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
    for prediction, candidates in zip(predictions, generated.candidates, strict=False):  # there may be none
        if candidates[0].confidence is not None:
            prediction["confidence"] = candidates[0].confidence
    scores = score_predictions(task.recipe, metrics, predictions)
    add_row_scores(predictions, scores, metrics)
    by_source: dict[str, Scores] = {}
    intervals_by_source: dict[str, dict[str, resampling.ScoreInterval]] = {}
    if len(split.titles) > 1:
        for number, title in enumerate(split.titles):
            of_source = [predictions[i] for i in np.flatnonzero(split.source_index[rows] == number)]
            by_source[title] = found = score_predictions(task.recipe, metrics, of_source)
            intervals_by_source[title] = resampling.find_intervals(found.resamplers, len(of_source), found.values)
    return SplitScores(
        loss=generated.loss,
        scores=scores,
        by_source=by_source,
        predictions=predictions,
        rows=len(rows),
        seconds=time.perf_counter() - started,
        intervals=resampling.find_intervals(scores.resamplers, len(rows), scores.values),
        intervals_by_source=intervals_by_source,
    )


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
    if (language := split.target_language(row)) is not None:
        prediction["language"] = language
    return prediction
