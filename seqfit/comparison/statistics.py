"""Means, spreads and confidence intervals of a comparison: is a candidate significantly different from the baseline?

In: the trials of both, as pairs. Out: a `Figure` for each quantity, with a `RelativeChange`: how much more or less than
the baseline, its 95% confidence interval, and whether it is significant.

**Times.** Both trials of a pair (same seed, same repeat) ran within minutes of each other and had the same rows at the
same steps. So steps are compared one by one, and the median over the steps is the pair's value: a long row slows both,
and other load that hits a few steps of one changes the median little.

    step             4      5      6      7      8
    baseline, s     .40    .80    .41    .81*   .60       * the machine was busy
    candidate, s    .42    .84    .44    .42    .63
    log ratio       .049   .049   .071  -.657   .049      ->   the pair's value is .049, a change of 5%

What is left differs from process to process (where memory lies, which neighbours the machine has), so the interval is
taken over the pairs: Student's t of their values. A standard deviation of 2% gives 2.8 x 2% / sqrt(5) = 2.5% from five
pairs, but 4.3 x 2% / sqrt(3) = 5.0% from three, which hardly know their own deviation. The machine that causes it is
the same for all candidates, so deviations are pooled: with five candidates besides the baseline, three pairs each give
t of 5 degrees of freedom, 2.6 instead of 4.3. (Not of 10: all pairs share the baseline's trials.) A candidate with more
than twice the pooled deviation keeps its own. Signs or ranks would need at least six pairs that all agree for 95%. One
pair, with nothing to pool, says nothing about noise: `is_significant` is None.

**A busy machine.** Neighbours of a virtual machine slow it by up to a third for a minute, and no counter shows it. So
on a CPU a fixed calibration workload is timed between steps (training/peak.py), and a second clock counts a step in
multiples of it: what slows the machine slows both alike. It could hide what a candidate itself slows down, so it is
taken only where its interval is narrower, and its change within 1.25 times the half-width of the wall clock's. (98%
instead of 95%: a second clock is a second chance of a false alarm.) This is the only correction. Without it 5 of 10
slowdowns of 5% are found, with it 10 of 10 (benchmarks/noise); a third clock, the time that threads wait for a core,
changed none of these results.

    wall  +7% (-4% to +19%)    calibrated  +5% (+3% to +7%)    ->   +5% (+3% to +7%)    a busy machine
    wall  +5% (+2% to +8%)     calibrated   0% (-1% to +1%)    ->   +5% (+2% to +8%)    it slows the calibration, too

**Scores and losses.** Repeats of a seed are the same training, so they are averaged and each seed is one pair; the
interval is again t's. A score on n rows is known no better than n rows allow, however many seeds agree: an accuracy of
90% on 100 rows has a standard error of 3 points, the difference of two such scores up to 4.2. If both answered the same
rows and the answers were kept, McNemar's test is used: only rows that one got right and the other wrong matter. With
one seed, a difference within that error is not significant, and a larger one is unknown (None).

**Figures.** This is the one definition of time per step and tokens/s, for log, tables, verdict and page:

    step_seconds    baseline         the mean over its trials of the median step after warm-up
                    other candidate  that, times the ratio to the baseline, measured pair by pair
    tokens/s        both             real tokens per step / time per step

    baseline    .400  .404  .396                        step .400
    recompute   .480  .640* .476    * busy machine      ratio 1.20, with this pair corrected; step .480

So the ratio is corrected for a busy machine once, a printed percentage is the ratio of the two times next to it, and
tokens/s can't contradict them. Other quantities are the baseline's times the mean ratio, too; losses and scores are
means over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqfit.comparison.collect import LossGap, Measures, TrialRun, find_gaps
from seqfit.comparison.quantities import (
    CALIBRATED_STEP,
    STEP_SECONDS,
    TOKENS_PER_SECOND,
    find_quantity,
    in_display_order,
    is_row_mean,
)
from seqfit.comparison.records import Candidate, Figure, Matrix
from seqfit.metrics import metric_of_score, score

# Student's t, two-sided 95%, for 1 to 30 degrees of freedom.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.960
_CONTRADICTS = 1.25  # times the half-width of the wall clock's interval
_MOST_NEEDED = 1000
_NOISIER = 2.0  # times the pooled deviation: then a candidate keeps its own


@dataclass(frozen=True)
class RelativeChange:
    """Of a candidate to the baseline: -0.3 is 30% less."""

    change: float
    low: float | None = None  # of the 95% confidence interval, if there is one
    high: float | None = None
    is_significant: bool | None = None  # None: too few trials to tell
    needed: int | None = None  # if not significant: how many would make such a change significant
    needed_of: str = ""  # repeats, seeds or rows


@dataclass(frozen=True)
class Scatter:
    """Of pair values around their mean."""

    deviation: float
    freedom: int  # degrees of freedom: how well the deviation is known


def compare_steps(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """A pair's value: the median over common steps of log(ours / theirs); None without common steps."""
    common = [step for step in ours if step in theirs and ours[step] > 0 and theirs[step] > 0]
    return statistics.median(math.log(ours[step] / theirs[step]) for step in common) if common else None


def compare_values(ours: float, theirs: float) -> float | None:
    """A pair's value of a quantity with one figure per trial; None if one is 0 or less, which has no ratio."""
    return math.log(ours / theirs) if ours > 0 and theirs > 0 else None


def pool_scatter(candidates: Iterable[Sequence[float]]) -> Scatter | None:
    """Of the pair values of all candidates, each around its own mean; None if none has two."""
    known = [values for values in candidates if len(values) > 1]
    if not known:
        return None
    free = sum(len(values) - 1 for values in known)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in known)
    shared = 4 / (len(known) + 3)  # Satterthwaite's share, because all pairs share the baseline
    return Scatter(math.sqrt(squares / free), max(1, int(free * shared)))


def find_change(
    values: Sequence[float], floor: float, pooled: Scatter | None = None, *, is_exact: bool = False
) -> RelativeChange | None:
    """Of a candidate's pair values; a change below `floor` is never significant. None without a pair.

    `is_exact`: one pair is enough, because another would be the same.
    """
    if not values:
        return None
    mean = statistics.fmean(values)
    change = math.expm1(mean)
    own = Scatter(statistics.stdev(values), len(values) - 1) if len(values) > 1 else None
    scatter = own if own and (pooled is None or own.deviation > _NOISIER * pooled.deviation) else pooled
    if scatter is None:
        return RelativeChange(change, change, change, abs(change) >= floor) if is_exact else RelativeChange(change)
    half = find_student(scatter.freedom) * scatter.deviation / math.sqrt(len(values))
    is_significant = abs(mean) > half and abs(change) >= floor
    needed = count_needed(mean, scatter.deviation) if not is_significant and abs(change) >= floor else None
    low, high = math.expm1(mean - half), math.expm1(mean + half)
    return RelativeChange(change, low, high, is_significant, needed, "repeats" if needed else "")


def count_needed(mean: float, deviation: float) -> int | None:
    """How many values with this deviation make their mean significant; None for more than anybody would run."""
    counts = range(2, _MOST_NEEDED + 1)
    return next((n for n in counts if find_student(n - 1) * deviation / math.sqrt(n) < abs(mean)), None)


def sharpen(wall: RelativeChange | None, calibrated: RelativeChange | None) -> RelativeChange | None:
    """The more precise of two measurements of the same change, unless the second contradicts the first."""
    if wall is None or calibrated is None:
        return wall
    if wall.low is None or wall.high is None or calibrated.low is None or calibrated.high is None:
        return wall
    apart = calibrated.change - wall.change
    half = wall.high - wall.change if apart > 0 else wall.change - wall.low
    is_narrower = calibrated.high - calibrated.low < wall.high - wall.low
    return calibrated if is_narrower and abs(apart) <= _CONTRADICTS * half else wall


def find_score_change(
    pairs: Sequence[tuple[float, float]], *, row_error: float | None = None, rows: int = 0, is_same: bool = False
) -> RelativeChange | None:
    """`pairs`: a value of the candidate and of the baseline for every seed. None if the baseline's mean is 0.

    `row_error`: standard error of a difference due to the number of rows; `is_same`: the trainings are equal up to
    rounding.
    """
    baseline = abs(statistics.fmean(theirs for _, theirs in pairs)) if pairs else 0.0
    if baseline == 0:
        return None
    differences = [ours - theirs for ours, theirs in pairs]
    mean = statistics.fmean(differences)
    by_rows = 0.0 if row_error is None else _NORMAL * row_error
    count = len(differences)
    deviation = statistics.stdev(differences) if count > 1 else None
    by_seeds = 0.0 if deviation is None else find_student(count - 1) * deviation / math.sqrt(count)
    half = max(by_rows, by_seeds)
    is_significant: bool | None = not is_same and abs(mean) > half
    if deviation is None and is_significant:  # one seed: the rows alone can only show that it is not significant
        is_significant = None
    has_interval = half or deviation is not None
    low, high = ((mean - half) / baseline, (mean + half) / baseline) if has_interval else (None, None)
    change = RelativeChange(mean / baseline, low, high, is_significant)
    if is_same or mean == 0 or is_significant:
        return change
    if abs(mean) <= by_rows:
        needed = math.ceil(rows * (by_rows / mean) ** 2)
        return replace(change, needed=needed or None, needed_of="rows")
    return replace(change, needed=None if deviation is None else count_needed(mean, deviation), needed_of="seeds")


def estimate_row_error(ours: float, theirs: float, rows: int) -> float:
    """Of a difference of two scores (0 to 100) that are means over `rows`, as if these were independent.

    A mean of values from 0 to 100 varies most if each is one or the other, so this also bounds F1 and ROUGE.
    """
    return math.sqrt(sum(score * (100 - score) for score in (ours, theirs)) / rows)


def count_row_error(ours: Sequence[bool], theirs: Sequence[bool]) -> float:
    """McNemar's, of a difference in per cent, from the rows that each got right."""
    rows = len(ours)
    gained = sum(mine and not other for mine, other in zip(ours, theirs, strict=True))
    lost = sum(other and not mine for mine, other in zip(ours, theirs, strict=True))
    return 100 * math.sqrt(gained + lost - (gained - lost) ** 2 / rows) / rows


def find_student(freedom: int) -> float:
    """Student's t, two-sided 95%; beyond the table by the first term of its expansion, right to 0.003."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return _NORMAL + (_NORMAL**3 + _NORMAL) / (4 * freedom)


_RIGHT_OR_WRONG = ("accuracy", "em", "numeric_em")  # scores that are 0 or 100 in every row


@dataclass(frozen=True)
class MeasuredTrial:
    run: TrialRun
    measures: Measures

    @property
    def pair(self) -> tuple[int, int]:
        """Trials of two candidates with the same repeat and seed are a pair."""
        return self.run.trial.repeat, self.run.trial.seed


class CandidateFigures:
    def __init__(self, matrix: Matrix, trials: Sequence[MeasuredTrial]) -> None:
        self._warm_up = matrix.warm_up
        self._baseline, self._processes = matrix.baseline.name, matrix.baseline.processes
        self._trials: dict[str, list[MeasuredTrial]] = {candidate.name: [] for candidate in matrix.candidates}
        for trial in sorted(trials, key=lambda trial: trial.pair):
            self._trials[trial.run.trial.candidate].append(trial)
        self._gaps: dict[str, LossGap] = find_gaps([trial.run for trial in trials], self._baseline)

    def of(self, candidate: Candidate) -> dict[str, Figure]:
        names = in_display_order({name for trial in self._trials[candidate.name] for name in trial.measures.values})
        return {name: self._build(candidate, name) for name in names}

    def _build(self, candidate: Candidate, name: str) -> Figure:
        trials = self._trials[candidate.name]
        values = tuple(trial.measures.values[name] for trial in trials if name in trial.measures.values)
        pairing = find_quantity(name).pairing
        if pairing == "derived":
            return self._derive_rate(candidate, values)
        counted = tuple(_means_by_seed(trials, name).values()) if pairing == "seeds" else values
        mean = statistics.fmean(counted) if pairing == "seeds" else _average(counted)
        figure = Figure(values, mean, statistics.stdev(counted) if len(counted) > 1 else None)
        change = None if candidate.name == self._baseline else self._find_change(candidate, name)
        if change is None:
            return figure
        if pairing != "seeds":
            theirs = [one.measures.values for one in self._trials[self._baseline]]
            mean = _average([one[name] for one in theirs if name in one]) * (1 + change.change)
        return replace(figure, mean=mean, change_low=change.low, change_high=change.high, **_change_fields(change))

    def _derive_rate(self, candidate: Candidate, values: tuple[float, ...]) -> Figure:
        """Tokens per step / time per step, so that the two agree."""
        ours, theirs = (self._tokens_per_step(name) for name in (candidate.name, self._baseline))
        step = self._build(candidate, STEP_SECONDS)
        figure = Figure(values, ours / step.mean, statistics.stdev(values) if len(values) > 1 else None)
        if step.change is None or not theirs:
            return figure
        low, high = (
            None if limit is None else ours / theirs / (1 + limit) - 1 for limit in (step.change_high, step.change_low)
        )
        is_same = math.isclose(ours, theirs, rel_tol=1e-3)
        significant = step.is_significant if is_same or low is None or high is None else not low <= 0 <= high
        relative = ours / theirs / (1 + step.change) - 1
        change = RelativeChange(relative, low, high, significant, step.needed, step.needed_of)
        return replace(figure, change_low=low, change_high=high, **_change_fields(change))

    def _tokens_per_step(self, name: str) -> float:
        measures = [trial.measures.values for trial in self._trials[name]]
        found = [one[TOKENS_PER_SECOND] * one[STEP_SECONDS] for one in measures if STEP_SECONDS in one]
        return statistics.fmean(found) if found else 0.0

    def _find_change(self, candidate: Candidate, name: str) -> RelativeChange | None:
        if find_quantity(name).pairing == "seeds":
            return self._find_seed_change(candidate, name)
        change = self._find_pair_change(candidate, name)
        if name != STEP_SECONDS or candidate.processes != self._processes:  # calibration runs in one process
            return change
        return sharpen(change, self._find_pair_change(candidate, CALIBRATED_STEP))

    def _find_pair_change(self, candidate: Candidate, name: str) -> RelativeChange | None:
        quantity = find_quantity(STEP_SECONDS if name == CALIBRATED_STEP else name)
        pairs = self._compare(name)
        pooled = pool_scatter(pairs.values()) if quantity.noise_is_shared else None
        return find_change(pairs[candidate.name], quantity.floor, pooled, is_exact=quantity.is_exact)

    def _compare(self, name: str) -> dict[str, list[float]]:
        baseline = {trial.pair: trial for trial in self._trials[self._baseline]}
        found = {}
        for candidate, trials in self._trials.items():
            if candidate != self._baseline:
                pairs = [(trial, baseline[trial.pair]) for trial in trials if trial.pair in baseline]
                values = [self._compare_pair(name, ours, theirs) for ours, theirs in pairs]
                found[candidate] = [value for value in values if value is not None]
        return found

    def _compare_pair(self, name: str, ours: MeasuredTrial, theirs: MeasuredTrial) -> float | None:
        if name in (STEP_SECONDS, CALIBRATED_STEP):
            return compare_steps(ours.run.by_step(name, self._warm_up), theirs.run.by_step(name, self._warm_up))
        if name not in ours.measures.values or name not in theirs.measures.values:
            return None
        return compare_values(ours.measures.values[name], theirs.measures.values[name])

    def _find_seed_change(self, candidate: Candidate, name: str) -> RelativeChange | None:
        trials = self._trials[candidate.name]
        ours, theirs = _means_by_seed(trials, name), _means_by_seed(self._trials[self._baseline], name)
        seeds = [seed for seed in ours if seed in theirs]
        gap = self._gaps.get(candidate.name)
        return find_score_change(
            [(ours[seed], theirs[seed]) for seed in seeds],
            row_error=self._find_row_error(name, trials, seeds) if is_row_mean(name) and seeds else None,
            rows=_count_rows(trials),
            is_same=candidate.kind == "lossless" and gap is not None and gap.is_rounding,
        )

    def _find_row_error(self, name: str, trials: Sequence[MeasuredTrial], seeds: Sequence[int]) -> float | None:
        """Mean over the seeds: all have the same rows, so more seeds don't reduce it."""
        first = {trial.run.trial.seed: trial for trial in reversed(trials)}
        other = {trial.run.trial.seed: trial for trial in reversed(self._trials[self._baseline])}
        errors = [error for seed in seeds if (error := _row_error(name, first[seed], other[seed])) is not None]
        return statistics.fmean(errors) if errors else None


def _change_fields(change: RelativeChange) -> dict[str, Any]:
    return {name: getattr(change, name) for name in ("change", "is_significant", "needed", "needed_of")}


def _average(values: Sequence[float]) -> float:
    """The geometric mean, whose ratios are the mean ratios of the pairs; the mean of values that may be 0."""
    return statistics.geometric_mean(values) if min(values) > 0 else statistics.fmean(values)


def _count_rows(trials: Sequence[MeasuredTrial]) -> int:
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
    return find_right(name, run.answers, (run.recipe.get("task") or {}).get("language", "en"))


def find_right(name: str, answers: Sequence[Mapping[str, Any]], language: str) -> list[bool]:
    """Which rows were right; [] if answers were not kept, or a row is not just right or wrong."""
    metric = metric_of_score(name)
    if name not in _RIGHT_OR_WRONG or metric is None:
        return []
    return [
        score([metric], [answer["references"]], [answer["prediction"]], language=language).values.get(name) == 100
        for answer in answers
    ]


def _means_by_seed(trials: Sequence[MeasuredTrial], name: str) -> Mapping[int, float]:
    """One value per seed, because repeats of a seed are the same training."""
    by_seed: dict[int, list[float]] = {}
    for trial in trials:
        if name in trial.measures.values:
            by_seed.setdefault(trial.run.trial.seed, []).append(trial.measures.values[name])
    return {seed: statistics.fmean(values) for seed, values in by_seed.items()}
