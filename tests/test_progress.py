from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from seqfit import progress
from seqfit import progress as progress_lines
from seqfit.cache import file_digest
from seqfit.progress import Bytes, ProgressLines, ReadingProgress, RowProgress, measure_read_share

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how far an open file is read")


@linux
def test_the_share_is_that_of_the_bytes_read_of_all_files(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_bytes(b"x" * 1000)
    assert measure_read_share(files) is None
    with files[1].open("rb", buffering=0) as opened:
        opened.read(500)
        assert measure_read_share(files) == 0.5


@linux
def test_a_compressed_file_counts_by_its_compressed_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(bytes(range(256)) * 4000))
    with gzip.open(file) as opened:
        opened.read()
        assert measure_read_share([file]) == 1.0


def test_the_number_of_rows_is_estimated_from_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int | None]] = []
    monkeypatch.setattr(progress, "_INTERVAL_SECONDS", 0)
    monkeypatch.setattr(progress, "measure_read_share", lambda files: 0.25)
    shown = ReadingProgress(lambda *call: calls.append(call), "reading", [Path("a")])
    shown.report(100)
    shown.end(390)
    assert calls == [("reading", 100, 400), ("reading", 390, 390)]


def test_reports_are_far_apart_however_often_rows_are_counted() -> None:
    calls: list[tuple[str, int, int | None]] = []
    shown = ReadingProgress(lambda *call: calls.append(call), "reading", total=1000)
    for row in range(1000):
        shown.report(row)
    assert len(calls) < 100


def test_hashing_is_counted_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int | None]] = []
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a").write_bytes(b"x" * 10)
    file_digest(tmp_path / "a", lambda *call: calls.append(call))
    assert calls == [("a: hashing", 10, 10)]
    assert isinstance(calls[0][1], Bytes)


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
