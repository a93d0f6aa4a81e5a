"""Bootstrap: 95% confidence intervals of scores, and the paired test of two systems on the same rows.

A bootstrap sample draws as many rows as there are, with replacement. It is written as how often each row was drawn, and
a metric's `Resampler` turns many such samples at once into scores. Most scores depend on sums over the rows only, so a
thousand samples are one product of matrices, and nothing is tokenized or compared a second time:

    rows      em of a row    samples (how often a row is drawn)    em
    0         1              1 1 1                                 66.7     the score itself
    1         1              2 0 1                                 66.7
    2         0              0 1 2                                 33.3

The interval of a score lies between the percentiles 2.5 and 97.5 of its samples. If all rows are right (or all wrong),
every sample is 100 (0) and says nothing; then the interval is the exact binomial one: 50 of 50 right is 92.9 to 100.

Of two systems each sample draws the same rows for both. The difference has the interval of its samples. p is computed
as sacreBLEU's PairedTest does, from its seed and its order of draws, so that BLEU and chrF get the same p: the share of
samples in which the absolute difference is further above its mean than the observed difference is from 0. Where no
sample has a difference, p is 1 (sacreBLEU's 0.001 would call two equal systems different).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SAMPLES = 1000
SEED = 12345  # sacreBLEU's
_MOST_DRAWS = 4_000_000  # at a time: 32 MB of counts
_MOST_UNDEFINED = 0.05  # of the samples; beyond that there is no interval
_TAIL = 0.025


@dataclass(frozen=True, slots=True)
class ScoreInterval:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Of two systems on the same rows: the second minus the first."""

    first: float
    difference: float
    interval: ScoreInterval | None
    p: float | None  # None where too many samples have no value


class Resampler(Protocol):
    def __call__(self, counts: Floats) -> Mapping[str, Floats]:
        """How often each row was drawn, [samples, rows] -> the scores of each sample; NaN where one has no value."""

    def select(self, rows: Sequence[int]) -> Resampler:
        """The same of these rows only."""

    def of_rows(self) -> Mapping[str, Floats]:
        """The scores of every row by itself."""


@dataclass(frozen=True)
class RowSums:
    """`columns` [rows, K] are summed over the rows of each sample, and `finish` turns sums [samples, K] into scores."""

    columns: Floats
    finish: Callable[[Floats], Mapping[str, Floats]]

    def __call__(self, counts: Floats) -> Mapping[str, Floats]:
        return self.finish(counts @ self.columns)

    def select(self, rows: Sequence[int]) -> RowSums:
        return RowSums(self.columns[np.asarray(rows, dtype=np.int64)], self.finish)

    def of_rows(self) -> Mapping[str, Floats]:
        return self.finish(self.columns)


def mean_rows(values: Mapping[str, Sequence[float]], scale: float = 100.0) -> RowSums:
    """Scores that are `scale` times the mean over the rows: name -> a value for every row."""
    names = list(values)
    columns = [np.asarray(values[name], dtype=np.float64) for name in names]

    def finish(sums: Floats) -> Mapping[str, Floats]:
        return {name: scale * sums[:, place] / sums[:, -1] for place, name in enumerate(names)}

    return RowSums(np.array([*columns, np.ones(len(columns[0]))]).T, finish)


def divide(numerator: Floats, denominator: Floats) -> Floats:
    """NaN where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator != 0)


def draw_counts(rows: int, samples: int = SAMPLES, seed: int = SEED) -> Iterator[Floats]:
    """How often each row was drawn, in chunks of samples."""
    draw = np.random.default_rng(seed)
    at_a_time = max(1, _MOST_DRAWS // rows)
    for first in range(0, samples, at_a_time):
        count = min(at_a_time, samples - first)
        drawn = draw.choice(rows, size=(count, rows), replace=True)
        drawn += rows * np.arange(count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * rows).reshape(count, rows).astype(np.float64)


def find_intervals(resamplers: Sequence[Resampler], rows: int, values: Mapping[str, float]) -> dict[str, ScoreInterval]:
    """Of those of the scores `values` that have a resampler and vary, or are at their bound in every row."""
    if rows == 0 or not resamplers:
        return {}
    samples = _resample(resamplers, draw_counts(rows))
    found = {name: _find_interval(samples[name], rows) for name in values if name in samples}
    return {name: interval for name, interval in found.items() if interval is not None}


def score_rows(resamplers: Sequence[Resampler]) -> dict[str, Floats]:
    """The scores of every row, as if it were all there is."""
    return {name: scores for resampler in resamplers for name, scores in resampler.of_rows().items()}


def compare_systems(first: Sequence[Resampler], second: Sequence[Resampler], rows: int) -> dict[str, PairedDifference]:
    """By score, of those that both systems have."""
    if rows == 0:
        return {}
    ours, theirs = _resample(first, draw_counts(rows)), _resample(second, draw_counts(rows))
    every = np.ones((1, rows))
    mine, other = _resample(first, iter([every])), _resample(second, iter([every]))
    found = {}
    for name in ours:
        if name in theirs and np.isfinite(difference := float(other[name][0] - mine[name][0])):
            found[name] = _compare_samples(float(mine[name][0]), difference, theirs[name] - ours[name])
    return found


def _compare_samples(first: float, difference: float, differences: Floats) -> PairedDifference:
    known = differences[np.isfinite(differences)]
    if len(known) < (1 - _MOST_UNDEFINED) * len(differences):
        return PairedDifference(first, difference, None, None)
    low, high = np.quantile(known, [_TAIL, 1 - _TAIL])
    absolute = np.abs(known)
    further = int(np.sum(absolute - absolute.mean() > abs(difference)))
    p = (further + 1) / (len(known) + 1) if known.any() else 1.0
    return PairedDifference(first, difference, ScoreInterval(float(low), float(high)), p)


def _resample(resamplers: Sequence[Resampler], chunks: Iterator[Floats]) -> dict[str, Floats]:
    parts: dict[str, list[Floats]] = {}
    for counts in chunks:
        for resampler in resamplers:
            for name, scores in resampler(counts).items():
                parts.setdefault(name, []).append(scores)
    return {name: np.concatenate(scores) for name, scores in parts.items()}


def _find_interval(samples: Floats, rows: int) -> ScoreInterval | None:
    known = samples[np.isfinite(samples)]
    if len(known) < (1 - _MOST_UNDEFINED) * len(samples):
        return None
    low, high = map(float, np.quantile(known, [_TAIL, 1 - _TAIL]))
    if known.min() < known.max():
        return ScoreInterval(low, high)
    exact = 100.0 * _TAIL ** (1 / rows)  # Clopper and Pearson's limit of n successes in n trials
    if abs(low - 100.0) < 1e-9:
        return ScoreInterval(exact, 100.0)
    return ScoreInterval(0.0, 100.0 - exact) if low == 0.0 else None
