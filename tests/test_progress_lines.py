from __future__ import annotations

import pytest

from seqfit import progress as progress_lines
from seqfit.progress import Bytes, ProgressLines, RowProgress


class _Work:
    """Lines that are written while a clock of its own goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.now = 1000.0
        monkeypatch.setattr(progress_lines.time, "monotonic", lambda: self.now)
        self._show = ProgressLines(self.lines.append)

    def go(self, seconds: float, what: str, done: int, total: int | None) -> None:
        self.now += seconds
        self._show(what, done, total)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> _Work:
    return _Work(monkeypatch)


def test_a_line_comes_every_five_seconds(work: _Work) -> None:
    for number in range(24):
        work.go(0.5, "news.jsonl: tokenizing train", RowProgress(6000 * number), 292_000)
    assert work.lines == [
        "news.jsonl: tokenizing train: 60,000 rows, 21% (12,000 rows/s, about 19 s left)",
        "news.jsonl: tokenizing train: 120,000 rows, 41% (12,000 rows/s, about 14 s left)",
    ]


def test_work_that_ends_within_five_seconds_has_no_line(work: _Work) -> None:
    for _ in range(3):  # each at another time of a long run
        work.now += 3600
        for number in range(9):
            work.go(0.5, f"reading {work.now // 3600}", RowProgress(number), 10)
    assert work.lines == []


def test_short_pieces_of_work_that_follow_on_each_other_are_one_silence(work: _Work) -> None:
    work.go(0, "a: hashing", Bytes(2**20), 2**22)
    work.go(3, "a: hashing", Bytes(2**22), 2**22)
    work.go(1, "a: splitting", RowProgress(10), None)
    work.go(1, "a: splitting", RowProgress(1010), None)
    assert work.lines == ["a: splitting: 1,010 rows (1,000 rows/s)"]


def test_bytes_and_plain_counts_are_shown_as_such(work: _Work) -> None:
    work.go(0, "a: hashing", Bytes(0), 2**30)
    work.go(8, "a: hashing", Bytes(2**28), 2**30)
    work.go(1, "planning", 0, 40)
    work.go(200, "planning", 10, 40)
    assert work.lines == [
        "a: hashing: 256.0 MiB, 25% (32.0 MiB/s, about 24 s left)",
        "planning: 10 of 40, 25% (about 10 min 00 s left)",
    ]
