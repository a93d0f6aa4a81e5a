from __future__ import annotations

import pytest

from seqfit.studies.figures import StudyFigure, bytes_figure, parse_figure, seconds_figure
from seqfit.studies.intervals import share_interval


@pytest.mark.parametrize(
    ("given", "base", "shown"),
    [
        ("7.00 GB", 7 * 2**30, "7 GB"),
        ("16.5 GB", 16.5 * 2**30, "16.5 GB"),
        ("45 s", 45.0, "45 s"),
        ("3 min", 180.0, "3 min"),
        ("1,200 tokens/s", 1200.0, "1,200 tokens/s"),
        ("79 %", 79.0, "79%"),
        ("0.068 of 1", 0.068, "0.068"),
    ],
)
def test_a_figure_is_a_number_with_its_unit(given: str, base: float, shown: str) -> None:
    figure = parse_figure(given)
    assert figure.base_value == pytest.approx(base)
    assert figure.format() == shown


def test_a_bound_stays_a_bound_and_oom_a_word() -> None:
    assert parse_figure("over 660 s").format() == "over 660 s"
    assert parse_figure("OOM") == StudyFigure(None, "", "OOM")


@pytest.mark.parametrize("given", [27, "27", 7.5, "27 bananas", "soon", None, True, "", "GB"])
def test_what_has_no_known_unit_is_no_figure(given: object) -> None:
    with pytest.raises(ValueError, match=r"unit|no figure"):
        parse_figure(given)


def test_predictions_are_shown_in_the_unit_that_was_published() -> None:
    assert bytes_figure("GB", 3.5 * 2**30, 3 * 2**30, 4 * 2**30).format() == "3.50 GB (3 to 4 GB)"
    assert bytes_figure("GB", 2**30, 2**30, 2**30).format(0.5) == "1 GB (50%)"
    assert seconds_figure("min", 90).format() == "1.50 min"


def test_the_interval_of_79_of_100_rows_is_wilsons() -> None:
    low, high = share_interval(0.79, 100)
    assert (low, high) == (pytest.approx(0.7002, abs=1e-4), pytest.approx(0.8583, abs=1e-4))
    assert share_interval(1.0, 10)[1] == pytest.approx(1.0)
    assert share_interval(0.0, 10)[0] == pytest.approx(0.0)
