"""A candidate's quantities over its trials, alongside the baseline's: mean, spread, change, noise.

In: what every trial has measured. Out: a `Figure` for each quantity. This is the one definition of step time and of
tokens/s, for log, tables, verdict and page:

    step_seconds    baseline    the mean over its trials of the median step after warm-up
                    candidate   that, times the ratio to the baseline, which is measured pair by pair (noise.py)
    tokens/s        both        real tokens per step, over the step time

    vanilla     .400  .404  .396                        step .400
    recompute   .480  .640* .476    * disturbed         ratio 1.20, the disturbed pair corrected; step .480

So a disturbed machine is corrected for once, in the ratio; the percentage that is printed is the ratio of the two step
times next to it, and tokens/s can't contradict them. Other quantities are the baseline's times the mean ratio, too.
Losses and scores are means over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqfit.compare.collect import Measures, TrialRun
from seqfit.compare.losses import Gap, find_gaps
from seqfit.compare.noise import (
    Change,
    compare_steps,
    compare_values,
    count_row_error,
    estimate_row_error,
    judge_pairs,
    judge_scores,
    pool_scatter,
    sharpen,
)
from seqfit.compare.quantities import (
    STEP_SECONDS,
    STEP_YARDSTICKS,
    TOKENS_PER_SECOND,
    find_quantity,
    in_order,
    is_row_mean,
)
from seqfit.compare.records import Entrant, Figure, Matrix
from seqfit.metrics.registry import metric_of_score, score

_RIGHT_OR_WRONG = ("accuracy", "em", "numeric_em")  # scores of which a row has 0 or 100


@dataclass(frozen=True)
class MeasuredTrial:
    """A trial that has finished, with its quantities."""

    run: TrialRun
    measures: Measures

    @property
    def round(self) -> tuple[int, int]:
        """What makes two trials a pair."""
        return self.run.trial.repeat, self.run.trial.seed


class Figures:
    """Makes the figures of every entrant of a matrix."""

    def __init__(self, matrix: Matrix, trials: Sequence[MeasuredTrial]) -> None:
        self._warm_up = matrix.warm_up
        self._reference, self._processes = matrix.reference.name, matrix.reference.processes
        self._trials: dict[str, list[MeasuredTrial]] = {entrant.name: [] for entrant in matrix.entrants}
        for trial in sorted(trials, key=lambda trial: trial.round):
            self._trials[trial.run.trial.entrant].append(trial)
        self._gaps: dict[str, Gap] = find_gaps([trial.run for trial in trials], self._reference)

    def of(self, entrant: Entrant) -> dict[str, Figure]:
        """Every quantity that at least one of its trials has."""
        names = in_order({name for trial in self._trials[entrant.name] for name in trial.measures.values})
        return {name: self._build(entrant, name) for name in names}

    def _build(self, entrant: Entrant, name: str) -> Figure:
        trials = self._trials[entrant.name]
        values = tuple(trial.measures.values[name] for trial in trials if name in trial.measures.values)
        pairing = find_quantity(name).pairing
        if pairing == "derived":
            return self._derive_rate(entrant, values)
        counted = tuple(_means_by_seed(trials, name).values()) if pairing == "seeds" else values
        mean = statistics.fmean(counted) if pairing == "seeds" else _average(counted)
        figure = Figure(values, mean, statistics.stdev(counted) if len(counted) > 1 else None)
        change = None if entrant.name == self._reference else self._judge(entrant, name)
        if change is None:
            return figure
        if pairing != "seeds":
            theirs = [one.measures.values for one in self._trials[self._reference]]
            mean = _average([one[name] for one in theirs if name in one]) * (1 + change.change)
        return replace(figure, mean=mean, change_low=change.low, change_high=change.high, **_judged(change))

    def _derive_rate(self, entrant: Entrant, values: tuple[float, ...]) -> Figure:
        """Tokens per second: tokens per step over the step time, so that both say the same."""
        ours, theirs = (self._find_step(name) for name in (entrant.name, self._reference))
        step = self._build(entrant, STEP_SECONDS)
        figure = Figure(values, ours / step.mean, statistics.stdev(values) if len(values) > 1 else None)
        if step.change is None or not theirs:
            return figure
        low, high = (
            None if limit is None else ours / theirs / (1 + limit) - 1 for limit in (step.change_high, step.change_low)
        )
        is_same = math.isclose(ours, theirs, rel_tol=1e-3)
        within = step.within_noise if is_same or low is None or high is None else low <= 0 <= high
        change = Change(ours / theirs / (1 + step.change) - 1, low, high, within, step.needed, step.needed_of)
        return replace(figure, change_low=low, change_high=high, **_judged(change))

    def _find_step(self, name: str) -> float:
        """Tokens per step of an entrant, mean over its trials."""
        measures = [trial.measures.values for trial in self._trials[name]]
        found = [one[TOKENS_PER_SECOND] * one[STEP_SECONDS] for one in measures if STEP_SECONDS in one]
        return statistics.fmean(found) if found else 0.0

    def _judge(self, entrant: Entrant, name: str) -> Change | None:
        if find_quantity(name).pairing == "seeds":
            return self._judge_seeds(entrant, name)
        change = self._judge_pairs(entrant, name)
        if name != STEP_SECONDS or entrant.processes != self._processes:  # the calibrated clock is of one process
            return change
        return sharpen(change, self._judge_pairs(entrant, STEP_YARDSTICKS))

    def _judge_pairs(self, entrant: Entrant, name: str) -> Change | None:
        quantity = find_quantity(STEP_SECONDS if name == STEP_YARDSTICKS else name)
        pairs = self._compare(name)
        pooled = pool_scatter(pairs.values()) if quantity.noise_is_shared else None
        return judge_pairs(pairs[entrant.name], quantity.floor, pooled, is_exact=quantity.is_exact)

    def _compare(self, name: str) -> dict[str, list[float]]:
        """The pair values of every entrant but the reference, in one quantity."""
        reference = {trial.round: trial for trial in self._trials[self._reference]}
        found = {}
        for entrant, trials in self._trials.items():
            if entrant != self._reference:
                pairs = [(trial, reference[trial.round]) for trial in trials if trial.round in reference]
                values = [self._compare_pair(name, ours, theirs) for ours, theirs in pairs]
                found[entrant] = [value for value in values if value is not None]
        return found

    def _compare_pair(self, name: str, ours: MeasuredTrial, theirs: MeasuredTrial) -> float | None:
        if name in (STEP_SECONDS, STEP_YARDSTICKS):
            return compare_steps(ours.run.by_step(name, self._warm_up), theirs.run.by_step(name, self._warm_up))
        if name not in ours.measures.values or name not in theirs.measures.values:
            return None
        return compare_values(ours.measures.values[name], theirs.measures.values[name])

    def _judge_seeds(self, entrant: Entrant, name: str) -> Change | None:
        trials = self._trials[entrant.name]
        ours, theirs = _means_by_seed(trials, name), _means_by_seed(self._trials[self._reference], name)
        seeds = [seed for seed in ours if seed in theirs]
        gap = self._gaps.get(entrant.name)
        return judge_scores(
            [(ours[seed], theirs[seed]) for seed in seeds],
            row_error=self._find_row_error(name, trials, seeds) if is_row_mean(name) and seeds else None,
            rows=_count_rows(trials),
            is_same=entrant.kind == "lossless" and gap is not None and gap.is_rounding,
        )

    def _find_row_error(self, name: str, trials: Sequence[MeasuredTrial], seeds: Sequence[int]) -> float | None:
        """Mean over the seeds: the rows are the same for all, so more seeds don't make it smaller."""
        first = {trial.run.trial.seed: trial for trial in reversed(trials)}
        other = {trial.run.trial.seed: trial for trial in reversed(self._trials[self._reference])}
        errors = [error for seed in seeds if (error := _row_error(name, first[seed], other[seed])) is not None]
        return statistics.fmean(errors) if errors else None


def _judged(change: Change) -> dict[str, Any]:
    """The fields of a figure that are those of a change."""
    return {name: getattr(change, name) for name in ("change", "within_noise", "needed", "needed_of")}


def _average(values: Sequence[float]) -> float:
    """The geometric mean, whose ratios are the mean ratios of the pairs; of what may be 0 the mean."""
    return statistics.geometric_mean(values) if min(values) > 0 else statistics.fmean(values)


def _count_rows(trials: Sequence[MeasuredTrial]) -> int:
    """That were scored."""
    return next((trial.run.evaluations[-1]["rows"] for trial in trials if trial.run.evaluations), 0)


def _row_error(name: str, ours: MeasuredTrial, theirs: MeasuredTrial) -> float | None:
    right = [_find_right(trial.run, name) for trial in (ours, theirs)]
    if right[0] and right[1] and len(right[0]) == len(right[1]):
        return count_row_error(right[0], right[1])
    rows = _count_rows([ours])
    scores = [trial.measures.values.get(name) for trial in (ours, theirs)]
    if not rows or scores[0] is None or scores[1] is None:
        return None
    return estimate_row_error(scores[0], scores[1], rows)


def _find_right(run: TrialRun, name: str) -> list[bool]:
    """Which rows its answers got right; [] where they were not kept, or where right and wrong are not all there is."""
    metric = metric_of_score(name)
    if name not in _RIGHT_OR_WRONG or metric is None:
        return []
    language = (run.recipe.get("task") or {}).get("language", "en")
    return [
        score([metric], [answer["references"]], [answer["prediction"]], language=language).values.get(name) == 100
        for answer in run.answers
    ]


def _means_by_seed(trials: Sequence[MeasuredTrial], name: str) -> Mapping[int, float]:
    """One value a seed, for the repeats of a seed are the same training."""
    by_seed: dict[int, list[float]] = {}
    for trial in trials:
        if name in trial.measures.values:
            by_seed.setdefault(trial.run.trial.seed, []).append(trial.measures.values[name])
    return {seed: statistics.fmean(values) for seed, values in by_seed.items()}
