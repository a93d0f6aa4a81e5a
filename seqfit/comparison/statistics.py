"""Means, spreads and confidence intervals of a comparison: whether a candidate differs from the baseline.

Whether a difference between an entrant and the reference is more than noise.

In: the trials of both, as pairs. Out: a `Change`: how much more or less it is, its 95% interval, and whether that is
within noise.

**Times.** Both trials of a round (same seed, same repeat) ran within minutes of each other and saw the same rows at the
same steps. So steps are compared one by one, and the median over the steps is the pair's value: a long row slows both,
and a burst of other work that hits a few steps of one moves the median little.

    step              4      5      6      7      8
    baseline, s       .40    .80    .41    .81*   .60       * baseline was disturbed
    entrant, s       .42    .84    .44    .42    .63
    log ratio        .049   .049   .071  -.657   .049      ->   the pair's value is .049, a change of 5%

What is left differs from process to process (where memory lies, which neighbours the machine has), and no number of
steps shows how much. So the interval is taken over the pairs: Student's t of their values. Values that scatter by 2%
are known to 2.8 x 2% / sqrt(5) = 2.5% from five pairs, but only to 4.3 x 2% / sqrt(3) = 5.0% from three, most of it
because three pairs hardly know their own scatter. The machine that disturbs them is the same for all entrants, so
their scatters are pooled: with five entrants beside the reference three pairs each give t of 5 degrees of freedom, 2.6
instead of 4.3. (Not of 10: all pairs share the reference's trials.) An entrant that scatters more than twice as much
as all together keeps its own. Signs or ranks would do without t's assumption, but six pairs that all agree are the
least that 95% can be had from. One pair, and nothing to pool with, says nothing about noise: `within_noise` is None.

**A disturbed machine.** Neighbours of a virtual machine slow it by up to a third for a minute, and no counter shows it.
So on a CPU a fixed calibration workload is timed between steps (training/peak.py), and a second clock counts a step
in multiples of it: what slows the machine slows both alike. It may hide what a candidate itself slows down, so it never
overrules the wall clock: only where its interval is narrower, and its change no further from the wall clock's than 1.25
times half of that one's interval, it is taken as the better measurement of the same change. (98% instead of 95%:
another clock is another chance of a false alarm.) That is the one correction. Without it 5 of 10 slowdowns of 5% are
found, with it 10 of 10 (benchmarks/noise); the time that threads wait for a core, once a third clock, changed none.

    wall  +7% (-4% to +19%)    calibrated  +5% (+3% to +7%)    ->   +5% (+3% to +7%)    a busy machine
    wall  +5% (+2% to +8%)     calibrated   0% (-1% to +1%)    ->   +5% (+2% to +8%)    it slows the calibration, too

**Scores and losses.** The repeats of a seed are the same training, so they are averaged and each seed is one pair; the
interval is t's again. A score on n rows is also no better known than n rows allow, however many seeds agree: an
accuracy of 90% on 100 rows has a standard error of 3 points, the difference of two such up to 4.2. Where both answered
the same rows and the answers are there, McNemar's count is used: only the rows that one got right and the other wrong
matter. With one seed a difference within that error is within noise, and a larger one is unknown (None).

A candidate's quantities over its trials, alongside the baseline's: mean, spread, change, noise.

In: what every trial has measured. Out: a `Figure` for each quantity. This is the one definition of step time and of
tokens/s, for log, tables, verdict and page:

    step_seconds    baseline    the mean over its trials of the median step after warm-up
                    candidate   that, times the ratio to the baseline, which is measured pair by pair (noise.py)
    tokens/s        both        real tokens per step, over the step time

    baseline     .400  .404  .396                        step .400
    recompute   .480  .640* .476    * disturbed         ratio 1.20, the disturbed pair corrected; step .480

So a disturbed machine is corrected for once, in the ratio; the percentage that is printed is the ratio of the two step
times next to it, and tokens/s can't contradict them. Other quantities are the baseline's times the mean ratio, too.
Losses and scores are means over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqfit.comparison.collect import Gap, Measures, TrialRun, find_gaps
from seqfit.comparison.quantities import (
    STEP_SECONDS,
    STEP_YARDSTICKS,
    TOKENS_PER_SECOND,
    find_quantity,
    in_display_order,
    is_row_mean,
)
from seqfit.comparison.records import Candidate, Figure, Matrix
from seqfit.metrics.registry import metric_of_score, score

# Student's t, two-sided 95%, for 1 to 30 degrees of freedom.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.960
_CONTRADICTS = 1.25  # times half of the wall clock's interval
_MOST_NEEDED = 1000
_NOISIER = 2.0  # times the pooled deviation: then an entrant's own counts


@dataclass(frozen=True)
class RelativeChange:
    """An entrant against the reference: -0.3 is 30% less."""

    change: float
    low: float | None = None  # of the 95% interval; None where there is none
    high: float | None = None
    within_noise: bool | None = None  # None: too few trials to tell
    needed: int | None = None  # where it is within noise: how many would tell such a change from nothing
    needed_of: str = ""  # repeats, seeds or rows


@dataclass(frozen=True)
class Scatter:
    """Of pair values around their mean."""

    deviation: float
    freedom: int  # degrees of it: how well the deviation is known


def compare_steps(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """A pair's value: the median over common steps of log(ours / theirs); None where they have none in common."""
    common = [step for step in ours if step in theirs and ours[step] > 0 and theirs[step] > 0]
    return statistics.median(math.log(ours[step] / theirs[step]) for step in common) if common else None


def compare_values(ours: float, theirs: float) -> float | None:
    """A pair's value where a trial has one figure; None where one is 0 or less, which has no ratio."""
    return math.log(ours / theirs) if ours > 0 and theirs > 0 else None


def pool_scatter(entrants: Iterable[Sequence[float]]) -> Scatter | None:
    """Of the pair values of all entrants, each around its own mean; None where nobody has two."""
    known = [values for values in entrants if len(values) > 1]
    if not known:
        return None
    free = sum(len(values) - 1 for values in known)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in known)
    shared = 4 / (len(known) + 3)  # Satterthwaite's share, for pairs that have the reference in common
    return Scatter(math.sqrt(squares / free), max(1, int(free * shared)))


def judge_pairs(
    values: Sequence[float], floor: float, pooled: Scatter | None = None, *, is_exact: bool = False
) -> RelativeChange | None:
    """Of an entrant's pair values; a change below `floor` is never called one. None without a pair.

    `is_exact`: one pair says all, because another would be the same.
    """
    if not values:
        return None
    mean = statistics.fmean(values)
    change = math.expm1(mean)
    scatter = _choose_scatter(values, pooled)
    if scatter is None:
        return RelativeChange(change, change, change, abs(change) < floor) if is_exact else RelativeChange(change)
    half = find_student(scatter.freedom) * scatter.deviation / math.sqrt(len(values))
    within = abs(mean) <= half or abs(change) < floor
    needed = count_needed(mean, scatter.deviation) if within and abs(change) >= floor else None
    return RelativeChange(
        change, math.expm1(mean - half), math.expm1(mean + half), within, needed, "repeats" if needed else ""
    )


def count_needed(mean: float, deviation: float) -> int | None:
    """How many values that scatter so tell their mean from 0; None for more than anybody would make."""
    counts = range(2, _MOST_NEEDED + 1)
    return next((n for n in counts if find_student(n - 1) * deviation / math.sqrt(n) < abs(mean)), None)


def sharpen(wall: RelativeChange | None, calibrated: RelativeChange | None) -> RelativeChange | None:
    """The better known of two measurements of a step's change, unless the second contradicts the first."""
    if wall is None or calibrated is None:
        return wall
    if wall.low is None or wall.high is None or calibrated.low is None or calibrated.high is None:
        return wall
    apart = calibrated.change - wall.change
    half = wall.high - wall.change if apart > 0 else wall.change - wall.low
    is_narrower = calibrated.high - calibrated.low < wall.high - wall.low
    return calibrated if is_narrower and abs(apart) <= _CONTRADICTS * half else wall


def judge_scores(
    pairs: Sequence[tuple[float, float]], *, row_error: float | None = None, rows: int = 0, is_same: bool = False
) -> RelativeChange | None:
    """Entrant and reference, a value each for every seed; None where the reference's mean is 0.

    `row_error` is the standard error that the number of rows leaves in a difference; `is_same` says that the trainings
    are known to be the same up to rounding.
    """
    reference = abs(statistics.fmean(theirs for _, theirs in pairs)) if pairs else 0.0
    if reference == 0:
        return None
    differences = [ours - theirs for ours, theirs in pairs]
    mean = statistics.fmean(differences)
    by_rows = 0.0 if row_error is None else _NORMAL * row_error
    deviation = statistics.stdev(differences) if len(differences) > 1 else None
    by_seeds = (
        0.0 if deviation is None else find_student(len(differences) - 1) * deviation / math.sqrt(len(differences))
    )
    half = max(by_rows, by_seeds)
    within: bool | None = is_same or abs(mean) <= half
    if deviation is None and not within:  # one seed: the rows alone can say "within noise", and nothing the opposite
        within = None
    low, high = (
        ((mean - half) / reference, (mean + half) / reference) if half or deviation is not None else (None, None)
    )
    change = RelativeChange(mean / reference, low, high, within)
    if is_same or mean == 0 or within is False:
        return change
    if abs(mean) <= by_rows:
        needed = math.ceil(rows * (by_rows / mean) ** 2)
        return replace(change, needed=needed or None, needed_of="rows")
    return replace(change, needed=None if deviation is None else count_needed(mean, deviation), needed_of="seeds")


def estimate_row_error(ours: float, theirs: float, rows: int) -> float:
    """Of a difference of two scores (0 to 100) that are means over so many rows, as if they were other rows.

    A mean of values from 0 to 100 scatters most where each is one or the other, so this also bounds F1 and ROUGE.
    """
    return math.sqrt(sum(score * (100 - score) for score in (ours, theirs)) / rows)


def count_row_error(ours: Sequence[bool], theirs: Sequence[bool]) -> float:
    """McNemar's: of a difference in per cent, from which rows each got right."""
    rows = len(ours)
    gained = sum(mine and not other for mine, other in zip(ours, theirs, strict=True))
    lost = sum(other and not mine for mine, other in zip(ours, theirs, strict=True))
    return 100 * math.sqrt(gained + lost - (gained - lost) ** 2 / rows) / rows


def _choose_scatter(values: Sequence[float], pooled: Scatter | None) -> Scatter | None:
    own = Scatter(statistics.stdev(values), len(values) - 1) if len(values) > 1 else None
    if own is None or pooled is None:
        return own or pooled
    return own if own.deviation > _NOISIER * pooled.deviation else pooled


def find_student(freedom: int) -> float:
    """Student's t, two-sided 95%; beyond the table by the first term of its expansion, right to 0.003."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return _NORMAL + (_NORMAL**3 + _NORMAL) / (4 * freedom)


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


class CandidateFigures:
    """Makes the figures of every entrant of a matrix."""

    def __init__(self, matrix: Matrix, trials: Sequence[MeasuredTrial]) -> None:
        self._warm_up = matrix.warm_up
        self._reference, self._processes = matrix.reference.name, matrix.reference.processes
        self._trials: dict[str, list[MeasuredTrial]] = {entrant.name: [] for entrant in matrix.entrants}
        for trial in sorted(trials, key=lambda trial: trial.round):
            self._trials[trial.run.trial.entrant].append(trial)
        self._gaps: dict[str, Gap] = find_gaps([trial.run for trial in trials], self._reference)

    def of(self, entrant: Candidate) -> dict[str, Figure]:
        """Every quantity that at least one of its trials has."""
        names = in_display_order({name for trial in self._trials[entrant.name] for name in trial.measures.values})
        return {name: self._build(entrant, name) for name in names}

    def _build(self, entrant: Candidate, name: str) -> Figure:
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

    def _derive_rate(self, entrant: Candidate, values: tuple[float, ...]) -> Figure:
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
        change = RelativeChange(ours / theirs / (1 + step.change) - 1, low, high, within, step.needed, step.needed_of)
        return replace(figure, change_low=low, change_high=high, **_judged(change))

    def _find_step(self, name: str) -> float:
        """Tokens per step of an entrant, mean over its trials."""
        measures = [trial.measures.values for trial in self._trials[name]]
        found = [one[TOKENS_PER_SECOND] * one[STEP_SECONDS] for one in measures if STEP_SECONDS in one]
        return statistics.fmean(found) if found else 0.0

    def _judge(self, entrant: Candidate, name: str) -> RelativeChange | None:
        if find_quantity(name).pairing == "seeds":
            return self._judge_seeds(entrant, name)
        change = self._judge_pairs(entrant, name)
        if name != STEP_SECONDS or entrant.processes != self._processes:  # the calibrated clock is of one process
            return change
        return sharpen(change, self._judge_pairs(entrant, STEP_YARDSTICKS))

    def _judge_pairs(self, entrant: Candidate, name: str) -> RelativeChange | None:
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

    def _judge_seeds(self, entrant: Candidate, name: str) -> RelativeChange | None:
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


def _judged(change: RelativeChange) -> dict[str, Any]:
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
