from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from seqfit import progress
from seqfit.cache import file_digest
from seqfit.progress import Bytes, ReadingProgress, measure_read_share

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
