from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqfit.data.text_files import BROKEN, count_lines, read_chunks, read_text_lines
from seqfit.errors import DataError


def test_a_byte_order_mark_is_dropped_and_line_ends_stay(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa\nb\r\n")
    assert list(read_text_lines(tmp_path / "a.csv")) == ["a\n", "b\r\n"]
    assert "".join(read_chunks(tmp_path / "a.csv")) == "a\nb\r\n"


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\x0bstill\u2028one\ntwo\n", "utf-8")
    assert len(list(read_text_lines(tmp_path / "a.txt"))) == 2


@pytest.mark.parametrize("read", [read_text_lines, read_chunks])
def test_a_byte_that_does_not_decode_is_named_with_its_line(tmp_path: Path, read: object) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\nfine\nMa\xf1ana\n" + "ñ\n".encode() * 9)
    with pytest.raises(DataError, match=r"a\.txt, line 3: byte 0xf1 is not UTF-8.*data\.encoding"):
        list(read(tmp_path / "a.txt"))  # type: ignore[operator]
    text = "".join(read(tmp_path / "a.txt", keep_broken=True))  # type: ignore[operator]
    assert text.count("\n") == 12
    assert BROKEN.findall(text) == ["\udcf1"]


def test_a_file_that_ends_inside_a_character_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes("ññññ".encode()[:-1])
    with pytest.raises(DataError, match="not UTF-8"):
        list(read_chunks(tmp_path / "a.json"))


def test_a_carriage_return_ends_lines_where_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\rtwo\r")
    assert list(read_text_lines(tmp_path / "a.txt")) == ["one\r", "two\r"]


@pytest.mark.parametrize(("content", "lines"), [(b"", 0), (b"a", 1), (b"a\nb", 2), (b"a\nb\n", 2)])
def test_lines_are_counted_with_and_without_the_last_end(tmp_path: Path, content: bytes, lines: int) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert count_lines(tmp_path / "a.txt") == lines


def test_a_truncated_gzip_file_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 1000)
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="can't be unpacked"):
        list(read_text_lines(tmp_path / "a.gz"))


def test_plain_text_called_gz_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"line\n")
    assert list(read_text_lines(tmp_path / "a.gz")) == ["line\n"]
