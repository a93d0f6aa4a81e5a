"""Input and output of every metric: pairs of references and predictions come in, scores go out.

    Pairs(references=(("Ada", "Ada L."), ("",)), predictions=("ada", "Bob"), language="en", labels=None)
    Scores(values={"em": 50.0, "f1": 50.0}, signatures={"squad": "..."}, absent={})

Scores range from 0 to 100, except correlations, which start at -100, and errors, which are in the target's unit. A
score that can't be computed is absent with its reason, never 0. `resamplers` compute the same scores of any sample of
the rows (resampling.py), for confidence intervals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqfit.metrics.resampling import Resampler, mean_rows


@dataclass(frozen=True, slots=True)
class Pairs:
    """What is scored: one prediction and at least one reference per row."""

    references: Sequence[Sequence[str]]
    predictions: Sequence[str]
    language: str = "en"
    labels: Sequence[str] | None = None
    no_label: str | None = None  # the text of a row without labels; None if each row has exactly one label


@dataclass(frozen=True, slots=True)
class Scores:
    """Every score of a metric is either in `values` or in `absent`."""

    values: dict[str, float] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    """Metric -> the settings that comparable figures must share."""
    absent: dict[str, str] = field(default_factory=dict)
    """Score -> why it could not be computed."""
    resamplers: tuple[Resampler, ...] = field(default=(), compare=False, repr=False)

    def joined(self, other: Scores) -> Scores:
        return Scores(
            self.values | other.values,
            self.signatures | other.signatures,
            self.absent | other.absent,
            self.resamplers + other.resamplers,
        )


def base_language(language: str) -> str:
    """'es_MX' and 'es-419' are scored as 'es'."""
    return re.split(r"[-_]", language.lower(), maxsplit=1)[0]


def score_means(shares: Mapping[str, Sequence[float]]) -> Scores:
    """Scores that are the mean of a share per row, in per cent."""
    values = {name: mean_percent(of_rows) for name, of_rows in shares.items()}
    return Scores(values, resamplers=(mean_rows(shares),))


def mean_percent(shares: Sequence[float]) -> float:
    return 100.0 * sum(shares) / len(shares)
