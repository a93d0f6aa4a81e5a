from __future__ import annotations

from decimal import Decimal

import pytest

from seqfit.metrics.labels_and_numbers import parse_number, score_numeric
from seqfit.metrics.scores import Pairs


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", Decimal(18)),
        (" 1,200.0 ", Decimal(1200)),
        ("-$3", Decimal(-3)),
        ("−3", Decimal(-3)),
        ("+.5", Decimal("0.5")),
        ("12.", Decimal(12)),
        ("50%", Decimal(50)),
        ("5 €", Decimal(5)),
        ("", None),
        ("nan", None),
        ("Infinity", None),
        ("1e5", None),
        ("5$6", None),
        ("1,2", None),
        ("18 eggs", None),
    ],
)
def test_a_number_is_read_or_it_is_none(text: str, number: Decimal | None) -> None:
    assert parse_number(text) == number


def test_numbers_are_compared_by_value_without_tolerance() -> None:
    references = [["1200"], ["0.3"], ["18"], ["7", "8"], ["5"]]
    predictions = ["1,200.00", "0.30", "18.01", "8", "five"]
    assert score_numeric(Pairs(references, predictions)).values == {"numeric_em": 60.0}


def test_a_reference_that_is_not_a_number_makes_the_score_absent() -> None:
    scores = score_numeric(Pairs([["7"], ["many"]], ["7", "7"]))
    assert scores.values == {}
    assert scores.absent == {"numeric_em": "the reference 'many' is not a number"}
