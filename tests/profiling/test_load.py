from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqfit.errors import DataError
from seqfit.profiling.readers import read_trace


def test_a_file_is_recognised_by_its_content_not_by_its_name(both: dict[str, Path], tmp_path: Path) -> None:
    for kind, path in both.items():
        renamed = path.rename(tmp_path / f"{kind}.dat")
        assert read_trace(renamed).kind == kind


def test_both_formats_of_one_profile_give_the_same_trace(both: dict[str, Path]) -> None:
    kineto, nsight = read_trace(both["kineto"]), read_trace(both["nsight"])
    assert (kineto.calls, kineto.kernels, kineto.copies) == (nsight.calls, nsight.kernels, nsight.copies)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"hello", r"neither JSON nor SQLite.*seqfit reads.*Give another file"),
        ("a.json", b"", r"is empty.*seqfit reads"),
        ("report.nsys-rep", b"\x00\x01", r"nsys export --type sqlite report\.nsys-rep"),
        ("trace.json", gzip.compress(b"{}", mtime=0), r"is compressed.*ends in \.gz"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_to_do(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=expected):
        read_trace(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json can't be opened \(No such file"):
        read_trace(tmp_path / "nowhere.json")
