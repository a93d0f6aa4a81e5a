"""Accuracy and macro-F1 of label words, in per cent.

Words are the same where they agree but for case and white space. A row with several references is right where the
prediction is one of them; macro-F1 then takes that one for the row's label, and else the first.

    references  cat cat dog    predictions  cat dog dog    accuracy 66.7, F1 of cat 66.7, of dog 66.7, macro-F1 66.7
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seqfit.metrics.scores import Pairs, Scores, mean_percent


def score_accuracy(pairs: Pairs) -> Scores:
    """accuracy."""
    rows = zip(pairs.references, pairs.predictions, strict=True)
    return Scores({"accuracy": mean_percent([_folded(said) in map(_folded, wanted) for wanted, said in rows])})


def score_macro_f1(pairs: Pairs) -> Scores:
    """macro_f1, each label weighing the same: the labels given, or else those of the references.

    A given label that is neither wanted nor predicted anywhere has no F1; it is left out, and the signature names it.
    One that is predicted but never wanted has F1 0 and counts.
    """
    predicted = [_folded(text) for text in pairs.predictions]
    wanted = [_label_of(texts, said) for texts, said in zip(pairs.references, predicted, strict=True)]
    seen = {*wanted, *predicted}
    labels = list(dict.fromkeys(map(_folded, pairs.labels or wanted)))
    scored = [label for label in labels if label in seen]
    left_out = [label for label in labels if label not in seen]
    if not scored:
        return Scores(absent={"macro_f1": f"none of the labels {', '.join(labels)} is in a reference or prediction"})
    signature = f"macro_f1|labels:{len(scored)}" + (f"|left_out:{','.join(left_out)}" if left_out else "")
    return Scores({"macro_f1": mean_percent(_f1_of(scored, wanted, predicted))}, {"macro_f1": signature})


def _f1_of(labels: Sequence[str], wanted: Sequence[str], predicted: Sequence[str]) -> list[float]:
    hits = Counter(label for label, said in zip(wanted, predicted, strict=True) if label == said)
    times_wanted, times_predicted = Counter(wanted), Counter(predicted)
    return [2 * hits[label] / (times_wanted[label] + times_predicted[label]) for label in labels]


def _label_of(references: Sequence[str], predicted: str) -> str:
    folded = [_folded(text) for text in references]
    return predicted if predicted in folded else folded[0]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
