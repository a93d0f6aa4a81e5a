from __future__ import annotations

from seqfit.cli.data import draw_bar, draw_columns


def test_the_largest_count_is_as_high_as_the_picture() -> None:
    assert draw_columns([0, 1, 2, 4], height=2) == ["      ██", "  ▄▄████"]


def test_whatever_is_not_zero_shows() -> None:
    assert draw_columns([0, 1, 10_000], height=1) == ["  ▁▁██"]


def test_no_rows_draw_nothing() -> None:
    assert draw_columns([], height=2) == ["", ""]


def test_a_bar_is_as_long_as_its_share_of_the_largest() -> None:
    assert draw_bar(10, 10, width=4) == "████"
    assert draw_bar(5, 10, width=3) == "█▌"
    assert draw_bar(1, 10_000, width=4) == "▏"
    assert draw_bar(0, 10) == ""
