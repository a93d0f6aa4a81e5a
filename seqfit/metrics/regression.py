"""Pearson's and Spearman's correlation of numbers (times 100), their root mean square and mean absolute error.

    references  1 2 3    predictions  1.5 2 4      pearson 94.5   spearman 100   rmse 0.645   mae 0.5
    references  1 2 3    predictions  1 two 3      two is unparsable: 33.3

A prediction that is not a number has no error. In a correlation it counts as the mean of the other predictions
(Spearman: of their ranks), which lowers it; if it were left out, a model with numbers for two rows in a hundred could
have the best correlation. The errors are those of the predictions that are numbers, and `unparsable` is the share of
the others, in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import correlation, fmean

from seqfit.metrics.scores import Pairs, Scores, mean_percent

REGRESSION_SCORES = ("pearson", "spearman", "rmse", "mae", "unparsable")


def score_regression(pairs: Pairs) -> Scores:
    wanted = [_read(texts[0]) for texts in pairs.references]
    if None in wanted:
        text = pairs.references[wanted.index(None)][0]
        return Scores(absent=dict.fromkeys(REGRESSION_SCORES, f"the reference '{text}' is not a number"))
    targets = [value for value in wanted if value is not None]
    said = [_read(text) for text in pairs.predictions]
    errors = [value - target for value, target in zip(said, targets, strict=True) if value is not None]
    values = {"unparsable": mean_percent([value is None for value in said])}
    absent = dict.fromkeys(REGRESSION_SCORES[:-1], "no prediction is a number")
    if errors:
        values |= {"rmse": math.sqrt(fmean(error**2 for error in errors)), "mae": fmean(map(abs, errors))}
        correlations, absent = _correlate(targets, said)
        values |= correlations
    kept = {name: values[name] for name in REGRESSION_SCORES if name in values}
    return Scores(kept, {"regression": "regression|unparsable:at-mean"}, absent)


def rank_values(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of their ranks: [5, 7, 7] -> [1, 2.5, 2.5]."""
    order = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, value in enumerate(order, 1):
        first.setdefault(value, place)
        last[value] = place
    return [(first[value] + last[value]) / 2 for value in values]


def _correlate(targets: Sequence[float], said: Sequence[float | None]) -> tuple[dict[str, float], dict[str, str]]:
    """The correlations, or the reason why there are none."""
    known = [value for value in said if value is not None]
    if len(set(targets)) == 1 or len(set(known)) == 1:
        reason = f"all {'references' if len(set(targets)) == 1 else 'predictions'} are the same number"
        return {}, dict.fromkeys(("pearson", "spearman"), reason)
    ranks = iter(rank_values(known))
    by_rank = [None if value is None else next(ranks) for value in said]
    pearson, spearman = correlation(targets, _fill(said)), correlation(rank_values(targets), _fill(by_rank))
    return {"pearson": 100 * pearson, "spearman": 100 * spearman}, {}


def _fill(values: Sequence[float | None]) -> list[float]:
    mean = fmean(value for value in values if value is not None)
    return [mean if value is None else value for value in values]


def _read(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
