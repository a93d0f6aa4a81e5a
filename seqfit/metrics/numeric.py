"""Exact match of numbers: '1,200.0' is 1200, '12' is not 12.01, and what is no number is wrong.

Compared as decimals, without tolerance: 0.1 + 0.2 of a float would not be 0.3. Thousands may be grouped by commas and
a currency or per cent sign may stand by; the task has already taken the number out of its solution.
"""

from __future__ import annotations

import re
from decimal import Decimal

from seqfit.metrics.scores import Pairs, Scores, mean_percent

_NUMBER = re.compile(
    r"(?P<sign>[-+−]?)[$€£¥]?(?P<digits>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)\s?[%$€£¥]?",
)


def score_numeric(pairs: Pairs) -> Scores:
    """numeric_em; absent where a reference is no number."""
    shares = []
    for references, prediction in zip(pairs.references, pairs.predictions, strict=True):
        wanted = [parse_number(text) for text in references]
        if None in wanted:
            return Scores(absent={"numeric_em": f"the reference '{references[wanted.index(None)]}' is not a number"})
        shares.append(parse_number(prediction) in wanted)
    return Scores({"numeric_em": mean_percent(shares)})


def parse_number(text: str) -> Decimal | None:
    """The number that the text is, or None."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    number = Decimal(match["digits"].replace(",", ""))
    return -number if match["sign"] in ("-", "−") else number
