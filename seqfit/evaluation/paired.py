"""`seqfit evaluate A B`: two evaluations of the same rows come in, the difference of every score comes out.

    A    em 60.0    row 1 right, row 2 wrong, ...       difference  +4.0 (95% CI +1.2 to +6.9), p 0.004
    B    em 64.0    row 1 wrong, row 2 right, ...       41 rows better, 17 worse, 642 alike

Rows are paired by id and references, so that both answered the same question. Both are scored here, by the rules of the
first one's recipe; a bootstrap draws the same rows for both (metrics/resampling.py). A difference is significant if its
interval excludes 0. Groups (by kind of question, length, language, source) have the same figures of the main score; of
twenty groups without any difference one is significant by chance.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import DataError
from seqfit.evaluation.analysis import group_rows
from seqfit.evaluation.predictions import choose_metrics, score_predictions
from seqfit.metrics import Scores, higher_is_better, resampling, row_scores_of
from seqfit.progress import Progress
from seqfit.recipe import Recipe, load_recipe
from seqfit.rundir import Run, files
from seqfit.tasks import build_task

if TYPE_CHECKING:
    from seqfit.inspection import Data

Evaluation = Mapping[str, Any]  # the content of evaluation-SPLIT.json
_EXAMPLES = 20


@dataclass(frozen=True)
class ScoreChange:
    """Of a score, from the first run to the second."""

    name: str
    first: float
    second: float
    difference: float
    low: float | None  # of its 95% confidence interval
    high: float | None
    p: float | None

    @property
    def is_significant(self) -> bool | None:
        """None where there is no interval."""
        return None if self.low is None or self.high is None else not self.low <= 0 <= self.high

    @property
    def is_better(self) -> bool:
        return (self.difference > 0) == higher_is_better(self.name)


@dataclass(frozen=True)
class GroupChange:
    kind: str  # question, answer, length, language, source
    name: str
    rows: int
    change: ScoreChange


@dataclass(frozen=True)
class ChangedRow:
    """A row that one run answers better than the other, by the row's own score."""

    source: str
    references: list[str]
    first: str
    second: str
    first_score: float
    second_score: float


@dataclass(frozen=True)
class PairedEvaluation:
    rows: int  # that both have
    left_out: int  # that only one of them has
    scores: list[ScoreChange]  # the main one first
    groups: list[GroupChange]
    row_score: str  # by which rows are better or worse
    better_rows: int
    worse_rows: int
    better: list[ChangedRow]  # the largest changes first
    worse: list[ChangedRow]


def evaluate_pair(
    first: Run | str | Path,
    second: Run | str | Path,
    split: str = "test",
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> PairedEvaluation:
    """Compare two runs on the same rows. A run is evaluated if its checkpoint has no evaluation of the split yet, or if
    `overrides`, `data` or a `limit` are given, as in `evaluate`."""
    runs = [run if isinstance(run, Run) else Run(run) for run in (first, second)]
    recipe = load_recipe(runs[0].recipe, overrides)
    is_other = bool(overrides) or data is not None or limit is not None
    found = []
    for run in runs:
        known = None if is_other else _find_evaluation(run, split)
        if known is None:
            from seqfit.evaluation.evaluate import evaluate  # imports torch

            known = evaluate(run, split, overrides, data=data, limit=limit, progress=progress)
        found.append(known)
    return pair_evaluations(found[0], found[1], recipe, [str(run.path) for run in runs])


def _find_evaluation(run: Run, split: str) -> Evaluation | None:
    """That of the run's present checkpoint."""
    known = run.evaluation(split)
    try:
        metadata = json.loads((run.checkpoint / files.CHECKPOINT_METADATA).read_text("utf-8"))
    except (OSError, ValueError):  # evaluating reports it
        return None
    return known if known is not None and known.get("step") == metadata.get("step") else None


def pair_evaluations(first: Evaluation, second: Evaluation, recipe: Recipe, names: Sequence[str]) -> PairedEvaluation:
    """`recipe`: of the first run; `names`: of the runs, for errors."""
    ours, theirs = _pair_rows(first, second)
    if not ours:
        raise DataError(
            f"{names[0]} and {names[1]} have no evaluated row in common",
            "Two runs are compared on rows with the same id and references",
            "Evaluate both on the same data: seqfit evaluate A B --data FILE",
        )
    task = build_task(recipe.task)
    metrics, best = choose_metrics(task, recipe.eval)
    scored = [score_predictions(recipe.task, metrics, rows) for rows in (ours, theirs)]
    main = best if best in scored[0].values else next(iter(scored[0].values), "")
    compared = resampling.compare_systems(scored[0].resamplers, scored[1].resamplers, len(ours))
    order = sorted(compared, key=lambda name: name != main)
    changes = [_to_change(name, scored[0].values[name], compared[name]) for name in order if name in scored[0].values]
    row_score, better, worse = _find_changed(ours, theirs, scored, metrics)
    left_out = len(first["predictions"]) + len(second["predictions"]) - 2 * len(ours)
    groups = [
        GroupChange(kind, name, len(rows), change)
        for kind, named in group_rows(recipe.task, ours).items()
        for name, rows in named.items()
        if (change := _compare_group(scored, rows, main)) is not None
    ]
    return PairedEvaluation(
        rows=len(ours),
        left_out=left_out,
        scores=changes,
        groups=groups,
        row_score=row_score,
        better_rows=len(better),
        worse_rows=len(worse),
        better=better[:_EXAMPLES],
        worse=worse[:_EXAMPLES],
    )


def _pair_rows(first: Evaluation, second: Evaluation) -> tuple[list[Evaluation], list[Evaluation]]:
    by_key = _by_key(second["predictions"])
    pairs = [(row, by_key[key]) for key, row in _by_key(first["predictions"]).items() if key in by_key]
    return [row for row, _ in pairs], [row for _, row in pairs]


def _by_key(rows: Sequence[Evaluation]) -> dict[tuple[Any, ...], Evaluation]:
    """Of rows that are alike, the order decides."""
    seen: Counter[tuple[Any, ...]] = Counter()
    keyed = {}
    for row in rows:
        key = (row.get("data"), row["id"], *row["references"])
        keyed[(seen[key], *key)] = row
        seen[key] += 1
    return keyed


def _to_change(name: str, first: float, found: resampling.PairedDifference) -> ScoreChange:
    low, high = (None, None) if found.interval is None else (found.interval.low, found.interval.high)
    return ScoreChange(name, first, first + found.difference, found.difference, low, high, found.p)


def _compare_group(scored: Sequence[Scores], rows: Sequence[int], name: str) -> ScoreChange | None:
    first, second = ([one.select(rows) for one in scores.resamplers] for scores in scored)
    found = resampling.compare_systems(first, second, len(rows)).get(name)
    return None if found is None else _to_change(name, found.first, found)


def _find_changed(
    ours: Sequence[Evaluation], theirs: Sequence[Evaluation], scored: Sequence[Scores], metrics: Sequence[str]
) -> tuple[str, list[ChangedRow], list[ChangedRow]]:
    of_rows = [resampling.score_rows(scores.resamplers) for scores in scored]
    name = next((name for name in row_scores_of(metrics) if name in of_rows[0]), next(iter(of_rows[0]), ""))
    if not name:
        return "", [], []
    sign = 1 if higher_is_better(name) else -1
    values = [found[name].tolist() for found in of_rows]
    gains = [sign * (b - a) for a, b in zip(*values, strict=True)]
    order = sorted(range(len(gains)), key=lambda row: -abs(gains[row]))
    rows = [
        ChangedRow(
            ours[row]["source"],
            list(ours[row]["references"]),
            ours[row]["prediction"],
            theirs[row]["prediction"],
            values[0][row],
            values[1][row],
        )
        for row in order
    ]
    better = [changed for changed, row in zip(rows, order, strict=True) if gains[row] > 0]
    worse = [changed for changed, row in zip(rows, order, strict=True) if gains[row] < 0]
    return name, better, worse
