"""Labels and numbers: accuracy, micro-F1, macro-F1 and exact match in per cent, correlations and errors.

Labels are compared without case and white space. A row with several references is right if the prediction is one of
them; F1 then takes that reference as the row's label, and else the first.

    references  cat cat dog    predictions  cat dog dog    accuracy 66.7, F1 of cat 66.7, of dog 66.7, macro-F1 66.7

If rows have any number of labels (`Pairs.no_label` is given), a text is the set of its parts between commas, and the
text for no label is the empty set. F1 counts labels, and subset accuracy counts rows with equal sets:

    references  "cat, dog" "none"    predictions  "dog" "none"    micro-F1 66.7, subset accuracy 50

Exact match of numbers: '1,200.0' is 1200, '12' is not 12.01, and text that is not a number is wrong. Numbers are
compared as decimals without tolerance, because 0.1 + 0.2 is not 0.3 in floating point. Commas may group thousands, and
a currency or per cent sign is ignored; the task has already extracted the number from its solution.

Regression: Pearson's and Spearman's correlation (times 100), root mean square and mean absolute error.

    references  1 2 3    predictions  1.5 2 4      pearson 94.5   spearman 100   rmse 0.645   mae 0.5
    references  1 2 3    predictions  1 two 3      two is unparsable: 33.3

A prediction that is not a number has no error. In a correlation it counts as the mean of the other predictions
(Spearman: of their ranks), which lowers it; if it were left out, a model with numbers for two rows in a hundred could
have the best correlation. The errors are those of the predictions that are numbers, and `unparsable` is the share of
the others, in per cent.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import correlation, fmean

import numpy as np
from numpy.typing import NDArray

from seqfit.metrics.resampling import Floats, Resampler, RowSums, divide
from seqfit.metrics.scores import Pairs, Scores, mean_percent, score_means

Labels = frozenset[str]


def score_accuracy(pairs: Pairs) -> Scores:
    rows = zip(pairs.references, pairs.predictions, strict=True)
    return score_means({"accuracy": [fold_label(said) in map(fold_label, wanted) for wanted, said in rows]})


def score_exact_match(pairs: Pairs) -> Scores:
    """exact_match: the text is a reference, ignoring white space; case and punctuation count, as in code."""
    rows = zip(pairs.references, pairs.predictions, strict=True)
    return score_means({"exact_match": [said.split() in [text.split() for text in wanted] for wanted, said in rows]})


def score_subset_accuracy(pairs: Pairs) -> Scores:
    wanted, predicted = read_labels(pairs)
    return score_means({"subset_accuracy": [a == b for a, b in zip(wanted, predicted, strict=True)]})


def score_micro_f1(pairs: Pairs) -> Scores:
    """micro_f1: each label of each row has the same weight; a predicted text that is not a label counts as wrong."""
    wanted, predicted = read_labels(pairs)
    total = sum(map(len, wanted)) + sum(map(len, predicted))
    if total == 0:
        return Scores(absent={"micro_f1": "no row has a label, in references or predictions"})
    rows = [(len(a & b), len(a) + len(b)) for a, b in zip(wanted, predicted, strict=True)]
    resampler = RowSums(np.array(rows, dtype=np.float64), lambda sums: {"micro_f1": 200 * divide(*sums.T)})
    return Scores({"micro_f1": 200 * sum(hits for hits, _ in rows) / total}, resamplers=(resampler,))


def score_macro_f1(pairs: Pairs) -> Scores:
    """macro_f1: each label has the same weight; the given labels, or else those of the references.

    A given label that is in no reference or prediction has no F1; it is left out, and the signature names it. One that
    is predicted but in no reference has F1 0 and counts.
    """
    wanted, predicted = read_labels(pairs)
    seen = frozenset().union(*wanted, *predicted)
    labels = list(dict.fromkeys(map(fold_label, pairs.labels or [label for row in wanted for label in row])))
    scored = [label for label in labels if label in seen]
    left_out = [label for label in labels if label not in seen]
    if not scored:
        return Scores(absent={"macro_f1": f"none of the labels {', '.join(labels)} is in a reference or prediction"})
    signature = f"macro_f1|labels:{len(scored)}" + (f"|left_out:{','.join(left_out)}" if left_out else "")
    hits = Counter(label for row, said in zip(wanted, predicted, strict=True) for label in row & said)
    times = Counter(label for row in (*wanted, *predicted) for label in row)
    scores = [2 * hits[label] / times[label] for label in scored]
    return Scores(
        {"macro_f1": mean_percent(scores)},
        {"macro_f1": signature},
        resamplers=_resample_macro_f1(scored, wanted, predicted),
    )


_MOST_CELLS = 20_000_000  # rows times labels: 320 MB


def _resample_macro_f1(
    labels: Sequence[str], wanted: Sequence[Labels], predicted: Sequence[Labels]
) -> tuple[Resampler, ...]:
    """None for more rows and labels than memory should be spent on."""
    if len(labels) * len(wanted) > _MOST_CELLS:
        return ()
    place = {label: number for number, label in enumerate(labels)}
    columns = np.zeros((len(wanted), 2 * len(labels)))  # hits of each label, then how often it was wanted or predicted
    for row, (a, b) in enumerate(zip(wanted, predicted, strict=True)):
        for label in a | b:
            if label in place:
                columns[row, place[label]] = label in a & b
                columns[row, len(labels) + place[label]] = (label in a) + (label in b)

    def finish(sums: Floats) -> dict[str, Floats]:
        hits, times = sums[:, : len(labels)], sums[:, len(labels) :]
        return {
            "macro_f1": 200
            * divide(np.divide(hits, times, where=times > 0, out=np.zeros_like(hits)).sum(1), (times > 0).sum(1) * 1.0)
        }

    return (RowSums(columns, finish),)


def read_labels(pairs: Pairs) -> tuple[list[Labels], list[Labels]]:
    predicted = [_labels_in(text, pairs.no_label) for text in pairs.predictions]
    wanted = []
    for references, said in zip(pairs.references, predicted, strict=True):
        given = [_labels_in(text, pairs.no_label) for text in references]
        wanted.append(said if said in given else given[0])
    return wanted, predicted


def _labels_in(text: str, no_label: str | None) -> Labels:
    if no_label is None:
        return frozenset([fold_label(text)])
    if fold_label(text) == fold_label(no_label):
        return frozenset()
    return frozenset(label for part in text.split(",") if (label := fold_label(part)))


def fold_label(text: str) -> str:
    return " ".join(text.casefold().split())


_NUMBER = re.compile(r"(?P<sign>[-+−]?)[$€£¥]?(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)\s?[%$€£¥]?")


def score_numeric(pairs: Pairs) -> Scores:
    """numeric_em; absent if a reference is not a number."""
    shares = []
    for references, prediction in zip(pairs.references, pairs.predictions, strict=True):
        wanted = [parse_number(text) for text in references]
        if None in wanted:
            return Scores(absent={"numeric_em": f"the reference '{references[wanted.index(None)]}' is not a number"})
        shares.append(parse_number(prediction) in wanted)
    return score_means({"numeric_em": shares})


def parse_number(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    number = Decimal(match["digits"].replace(",", ""))
    return -number if match["sign"] in ("-", "−") else number


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
    signatures = {"regression": "regression|unparsable:at-mean"}
    given = np.array([0.0 if value is None else value for value in said])
    is_number = np.array([value is not None for value in said])
    resampler = _RegressionRows(np.array(targets, dtype=np.float64), given, is_number)
    return Scores(kept, signatures, absent, (resampler,))


@dataclass(frozen=True)
class _RegressionRows:
    wanted: Floats
    given: Floats  # 0 where the prediction is not a number
    is_number: NDArray[np.bool_]

    def __call__(self, counts: Floats) -> dict[str, Floats]:
        known = counts * self.is_number
        total = known.sum(1)
        errors = np.where(self.is_number, self.given - self.wanted, 0.0)
        x, y = (np.broadcast_to(values, counts.shape) for values in (self.wanted, self.given))
        x_ranks, y_ranks = _rank_drawn(self.wanted, counts), _rank_drawn(self.given, known)
        return {
            "pearson": _correlate_drawn(x, y, counts, known),
            "spearman": _correlate_drawn(x_ranks, y_ranks, counts, known),
            "rmse": np.sqrt(divide(known @ errors**2, total)),
            "mae": divide(known @ np.abs(errors), total),
            "unparsable": 100 * (1 - total / counts.sum(1)),
        }

    def select(self, rows: Sequence[int]) -> _RegressionRows:
        places = np.asarray(rows, dtype=np.int64)
        return _RegressionRows(self.wanted[places], self.given[places], self.is_number[places])

    def of_rows(self) -> dict[str, Floats]:
        errors = np.where(self.is_number, np.abs(self.given - self.wanted), np.nan)
        return {"mae": errors, "rmse": errors, "unparsable": 100.0 * ~self.is_number}


def _rank_drawn(values: Floats, counts: Floats) -> Floats:
    """Ranks within each sample, where equal values share the mean of theirs: [samples, rows]."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    of_group = np.add.reduceat(counts[:, order], starts, axis=1)
    ranks: Floats = (np.cumsum(of_group, axis=1) - of_group / 2 + 0.5)[:, group]
    return ranks


def _correlate_drawn(x: Floats, y: Floats, counts: Floats, known: Floats) -> Floats:
    """Pearson's, times 100; a y that is not known is at the mean of the others."""
    x = x - divide((counts * x).sum(1), counts.sum(1))[:, None]
    y = y - divide((known * y).sum(1), known.sum(1))[:, None]
    shared, of_x, of_y = (known * x * y).sum(1), (counts * x * x).sum(1), (known * y * y).sum(1)
    return 100 * divide(shared, np.sqrt(of_x * of_y))


def rank_values(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of their ranks: [5, 7, 7] -> [1, 2.5, 2.5]."""
    order = sorted(values)
    last = {value: place for place, value in enumerate(order, 1)}
    counts = Counter(values)
    return [last[value] - (counts[value] - 1) / 2 for value in values]


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
