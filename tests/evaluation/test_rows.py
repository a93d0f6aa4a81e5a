from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import DataError
from seqfit.evaluation.rows import rows_from_bytes, rows_from_fields, rows_from_file, rows_from_lines


def test_fields_make_one_row() -> None:
    assert rows_from_fields(["question=Who?", "context=a=b"]) == [{"question": "Who?", "context": "a=b"}]


def test_a_field_without_an_equals_sign_is_an_error() -> None:
    with pytest.raises(DataError, match="COLUMN=TEXT"):
        rows_from_fields(["Who?"])


def test_lines_are_json_objects_or_texts_and_empty_ones_are_left_out() -> None:
    assert list(rows_from_lines(['{"q": "a"}\n', "\n", "plain\ttext\n"])) == [{"q": "a"}, "plain\ttext"]


def test_wrong_json_names_its_line() -> None:
    with pytest.raises(DataError, match="line 2, column"):
        list(rows_from_lines(["a", '{"q": }']))


def test_a_data_file_is_read_by_its_format(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,context\nWho?,Ada did.\n")
    assert list(rows_from_file(tmp_path / "rows.csv")) == [{"question": "Who?", "context": "Ada did."}]
    (tmp_path / "rows.txt").write_text("Who?\n")
    assert list(rows_from_file(tmp_path / "rows.txt")) == ["Who?"]


def test_a_missing_file_is_an_error_in_three_parts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt does not exist.* Set --file"):
        rows_from_file(tmp_path / "none.txt")


def test_only_a_line_feed_ends_a_row_and_other_encodings_are_named() -> None:
    assert list(rows_from_bytes(["\ufeffa\u2028b\n".encode()])) == ["a\u2028b"]
    with pytest.raises(DataError, match=r"standard input, line 1: byte 0xf1"):
        list(rows_from_bytes([b"a\xf1o\n"]))
