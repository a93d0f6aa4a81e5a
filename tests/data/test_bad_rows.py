from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from seqfit.data.rows import BadRowCounter, BadRows, PartCount, check_bad_rows, describe_bad_rows, load_bad_rows
from seqfit.errors import DataError

SHORT = BadRows("fewer fields than columns", 3, ((9, "line 11: 2 of 3 columns"),), unread=True)


def _count(*causes: tuple[str, int]) -> tuple[BadRows, ...]:
    counter = BadRowCounter()
    for cause, number in causes:
        counter.add(cause, number, f"detail {number}", unread=False)
    return counter.summarise()


def test_rows_are_counted_by_cause_with_the_first_five() -> None:
    found = _count(("empty source", 2), *(("empty target", number) for number in range(10, 17)))
    assert [(bad.cause, bad.rows) for bad in found] == [("empty target", 7), ("empty source", 1)]
    assert found[0].examples == tuple((number, f"detail {number}") for number in range(10, 15))
    assert describe_bad_rows("train", 92, found) == [
        "train: 8 of 100 rows left out (8.0%): 7 empty target (rows 10, 11, 12, 13, 14, ...), 1 empty source (row 2)"
    ]
    assert describe_bad_rows("train", 92, ()) == []


def test_json_gives_back_what_was_counted() -> None:
    assert load_bad_rows(json.loads(json.dumps(asdict(SHORT)))) == SHORT


def test_a_share_that_is_allowed_is_no_error() -> None:
    check_bad_rows("mine", [PartCount("train", "a.csv", 57, [SHORT])], 0.05)
    check_bad_rows("mine", [PartCount("train", "a.csv", 0, [])], 0.05)
    with pytest.raises(DataError, match=r"mine: 3 of 59 rows can't be used \(5\.1% of a\.csv\)"):
        check_bad_rows("mine", [PartCount("train", "a.csv", 56, [SHORT])], 0.05)


def test_the_error_for_unreadable_rows_names_the_fields_that_say_how_to_read() -> None:
    with pytest.raises(DataError, match=r"row 9: line 11: 2 of 3 columns\n.*data\.columns.*max_bad_rows=0\.1 "):
        check_bad_rows("mine", [PartCount("train", "a.csv", 37, [SHORT])], 0.05)


def test_a_split_without_a_usable_row_is_an_error_however_many_are_allowed() -> None:
    parts = [PartCount("train", "a.csv", 1000, []), PartCount("test", "a.csv", 0, [SHORT])]
    with pytest.raises(DataError, match=r"no row of test can be used \(3 of all 1,003 rows are bad\)"):
        check_bad_rows("mine", parts, 1.0)


def test_short_details_are_all_shown() -> None:
    examples = ((9, "line 11: 2 of 3 columns"), (12, "line 14: 1 of 3"))
    short = BadRows("fewer fields than columns", 9, examples, unread=True)
    shown = r"9, rows 9, 12, \.\.\.\)\. For example row 9: line 11: .*; row 12: line 14: 1 of 3"
    with pytest.raises(DataError, match=shown):
        check_bad_rows("mine", [PartCount("train", "a.csv", 37, [short])], 0.05)
