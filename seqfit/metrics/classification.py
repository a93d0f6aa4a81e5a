"""Accuracy, micro-F1 and macro-F1 of labels, and exact match of numbers, in per cent.

Labels are compared without case and white space. A row with several references is right if the prediction is one of
them; F1 then takes that reference as the row's label, and else the first.

    references  cat cat dog    predictions  cat dog dog    accuracy 66.7, F1 of cat 66.7, of dog 66.7, macro-F1 66.7

If rows have any number of labels (`Pairs.no_label` is given), a text is the set of its parts between commas, and the
text for no label is the empty set. F1 counts labels, and subset accuracy counts rows with equal sets:

    references  "cat, dog" "none"    predictions  "dog" "none"    micro-F1 66.7, subset accuracy 50

Exact match of numbers: '1,200.0' is 1200, '12' is not 12.01, and text that is not a number is wrong. Numbers are
compared as decimals without tolerance, because 0.1 + 0.2 is not 0.3 in floating point. Commas may group thousands, and
a currency or per cent sign is ignored; the task has already extracted the number from its solution.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from seqfit.metrics.scores import Pairs, Scores, mean_percent

Labels = frozenset[str]


def score_accuracy(pairs: Pairs) -> Scores:
    rows = zip(pairs.references, pairs.predictions, strict=True)
    return Scores({"accuracy": mean_percent([_folded(said) in map(_folded, wanted) for wanted, said in rows])})


def score_exact_match(pairs: Pairs) -> Scores:
    """exact_match: the text is a reference, ignoring white space; case and punctuation count, as in code."""
    rows = zip(pairs.references, pairs.predictions, strict=True)
    return Scores(
        {"exact_match": mean_percent([said.split() in [text.split() for text in wanted] for wanted, said in rows])}
    )


def score_subset_accuracy(pairs: Pairs) -> Scores:
    wanted, predicted = _read_labels(pairs)
    return Scores({"subset_accuracy": mean_percent([a == b for a, b in zip(wanted, predicted, strict=True)])})


def score_micro_f1(pairs: Pairs) -> Scores:
    """micro_f1: each label of each row has the same weight; a predicted text that is not a label counts as wrong."""
    wanted, predicted = _read_labels(pairs)
    total = sum(map(len, wanted)) + sum(map(len, predicted))
    if total == 0:
        return Scores(absent={"micro_f1": "no row has a label, in references or predictions"})
    hits = sum(len(a & b) for a, b in zip(wanted, predicted, strict=True))
    return Scores({"micro_f1": 200 * hits / total})


def score_macro_f1(pairs: Pairs) -> Scores:
    """macro_f1: each label has the same weight; the given labels, or else those of the references.

    A given label that is in no reference or prediction has no F1; it is left out, and the signature names it. One that
    is predicted but in no reference has F1 0 and counts.
    """
    wanted, predicted = _read_labels(pairs)
    seen = frozenset().union(*wanted, *predicted)
    labels = list(dict.fromkeys(map(_folded, pairs.labels or [label for row in wanted for label in row])))
    scored = [label for label in labels if label in seen]
    left_out = [label for label in labels if label not in seen]
    if not scored:
        return Scores(absent={"macro_f1": f"none of the labels {', '.join(labels)} is in a reference or prediction"})
    signature = f"macro_f1|labels:{len(scored)}" + (f"|left_out:{','.join(left_out)}" if left_out else "")
    return Scores({"macro_f1": mean_percent(_f1_of(scored, wanted, predicted))}, {"macro_f1": signature})


def _f1_of(labels: Sequence[str], wanted: Sequence[Labels], predicted: Sequence[Labels]) -> list[float]:
    hits = Counter(label for row, said in zip(wanted, predicted, strict=True) for label in row & said)
    times_wanted, times_predicted = (Counter(label for row in rows for label in row) for rows in (wanted, predicted))
    return [2 * hits[label] / (times_wanted[label] + times_predicted[label]) for label in labels]


def _read_labels(pairs: Pairs) -> tuple[list[Labels], list[Labels]]:
    predicted = [_labels_in(text, pairs.no_label) for text in pairs.predictions]
    wanted = []
    for references, said in zip(pairs.references, predicted, strict=True):
        given = [_labels_in(text, pairs.no_label) for text in references]
        wanted.append(said if said in given else given[0])
    return wanted, predicted


def _labels_in(text: str, no_label: str | None) -> Labels:
    if no_label is None:
        return frozenset([_folded(text)])
    if _folded(text) == _folded(no_label):
        return frozenset()
    return frozenset(label for part in text.split(",") if (label := _folded(part)))


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


_NUMBER = re.compile(
    r"(?P<sign>[-+−]?)[$€£¥]?(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)\s?[%$€£¥]?",
)


def score_numeric(pairs: Pairs) -> Scores:
    """numeric_em; absent if a reference is not a number."""
    shares = []
    for references, prediction in zip(pairs.references, pairs.predictions, strict=True):
        wanted = [parse_number(text) for text in references]
        if None in wanted:
            return Scores(absent={"numeric_em": f"the reference '{references[wanted.index(None)]}' is not a number"})
        shares.append(parse_number(prediction) in wanted)
    return Scores({"numeric_em": mean_percent(shares)})


def parse_number(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    number = Decimal(match["digits"].replace(",", ""))
    return -number if match["sign"] in ("-", "−") else number
