from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from seqfit.data.sources import detect_format, read_parallel, read_rows
from seqfit.errors import DataError


def _write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, "utf-8", newline="")
    return folder / name


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", '{"a": 1}\n', "jsonl"),
        ("a.json", '[{"a": 1}]', "json"),
        ("a.json", '{"a": 1}\n{"a": 2}\n', "jsonl"),
        ("a.json", '{"data": [{"paragraphs": []}]}', "squad"),
        ("a.csv", "a,b\n1,2\n", "csv"),
        ("a.csv", "a\tb\n1\t2\n", "tsv"),
        ("a.CSV", "a|b\n1|2\n", "psv"),
        ("a.tsv", "a\tb\n", "tsv"),
    ],
)
def test_the_format_is_found_by_ending_and_content(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert detect_format(_write(tmp_path, name, text)) == expected


def test_an_unknown_ending_is_an_error_that_lists_the_formats(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.xlsx ends in '\.xlsx'.*data\.format to one of json"):
        detect_format(_write(tmp_path, "a.xlsx", "x"))


def test_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.format is 'jsonk'.*Did you mean 'json'"):
        read_rows(_write(tmp_path, "a.txt", "x"), "jsonk")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'a,b\r\n1,"x, ""y""\nz"\r\n\r\n2,w\r\n'),
        ("a.psv", 'a|b\n1|"x, ""y""\nz"\n2|w\n'),
        ("a.csv", 'a;b\n1;"x, ""y""\nz"\n2;w\n'),
    ],
)
def test_quotes_are_read_as_rfc_4180_says(tmp_path: Path, name: str, text: str) -> None:
    rows = list(read_rows(_write(tmp_path, name, text)))
    assert rows == [{"a": "1", "b": 'x, "y"\nz'}, {"a": "2", "b": "w"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [('a\tb\n1\t"Hi" she said\n', '"Hi" she said'), ('a\tb\n1\t"Hi ""Bob"""\n', 'Hi "Bob"'), ('a\tb\n1\t5"\n', '5"')],
)
def test_tabs_come_with_quotes_and_without(tmp_path: Path, text: str, value: str) -> None:
    assert list(read_rows(_write(tmp_path, "a.tsv", text))) == [{"a": "1", "b": value}]


def test_columns_name_a_file_without_a_header(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", "3,Fears\n4,Race\n")
    assert next(read_rows(path, columns=["label", "title"])) == {"label": "3", "title": "Fears"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"line 3: 1 fields, but 2 columns \(a, b\)"),
        ("a,a\n1,2\n", r"the first line is \['a', 'a'\]"),
        ('a,b\n1,"x\n2,y\n', "record at line 2: unexpected end of data"),
        ('a,b\n1,"x"y\n', "record at line 2"),
        ("", "has no rows"),
        ("a,b\n", "has no rows"),
    ],
)
def test_a_wrong_separated_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_rows(_write(tmp_path, "a.csv", text)))


def test_a_field_may_be_longer_than_the_csv_module_allows(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", f"a,b\n1,{'x' * 300_000}\n")
    assert len(next(read_rows(path))["b"]) == 300_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n\n{"a": }\n', "line 3, column 7"),
        ('{"a": 1}\n[1]\n', "line 2: '\\[1\\]' is no object"),
        ("\n", "has no rows"),
    ],
)
def test_a_wrong_json_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_rows(_write(tmp_path, "a.jsonl", text)))


def test_packed_files_read_like_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"a": "ñ"}).encode()))
    assert list(read_rows(tmp_path / "a.jsonl.gz")) == [{"a": "ñ"}]


def test_parquet_is_read_in_batches(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = [{"a": number, "b": {"text": [str(number)]}} for number in range(2500)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=700)
    assert list(read_rows(tmp_path / "a.parquet")) == rows


def test_a_wrong_parquet_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a Parquet file"):
        list(read_rows(_write(tmp_path, "a.parquet", "nothing of the kind")))


def test_parallel_files_give_one_row_per_line(tmp_path: Path) -> None:
    (tmp_path / "t.en.gz").write_bytes(gzip.compress(b"Two dogs.\nA\rcat.\n"))
    german = _write(tmp_path, "t.de", "Zwei Hunde.\r\nEine Katze.")
    rows = list(read_parallel({"en": tmp_path / "t.en.gz", "de": german}))
    assert rows == [{"en": "Two dogs.", "de": "Zwei Hunde."}, {"en": "A\rcat.", "de": "Eine Katze."}]


def test_parallel_files_of_different_length_are_an_error(tmp_path: Path) -> None:
    files = {"en": _write(tmp_path, "t.en", "a\nb\n"), "de": _write(tmp_path, "t.de", "a\n")}
    with pytest.raises(DataError, match=r"t\.de ends before line 2"):
        list(read_parallel(files))


def test_every_row_of_the_real_psv_files_has_seven_columns(shared_data: Path) -> None:
    counts = {}
    for split in ("train", "valid", "test"):
        rows = list(read_rows(shared_data / "causal_qa" / f"causalqa_{split}.psv"))
        assert {len(row) for row in rows} == {7}
        assert not any('""' in text or text.startswith('"Since') for row in rows for text in row.values())
        counts[split] = len(rows)
    assert counts == {"train": 7148, "valid": 912, "test": 959}


def test_the_real_csv_without_a_header_is_read_whole(shared_data: Path) -> None:
    rows = list(read_rows(shared_data / "ag_news" / "test.csv", columns=["label", "title", "description"]))
    assert len(rows) == 7600
    assert {row["label"] for row in rows} == {"1", "2", "3", "4"}


def test_real_parallel_text_is_read_whole(shared_data: Path) -> None:
    folder = shared_data / "multi30k"
    rows = list(read_parallel({"en": folder / "val.en.gz", "de": folder / "val.de.gz"}))
    assert len(rows) == 1014
    assert rows[0]["de"].startswith("Eine Gruppe von Männern")


def test_line_ends_of_old_macs_are_named(tmp_path: Path) -> None:
    (tmp_path / "mac.csv").write_bytes(b"a,b\r1,2\r3,4\r")
    with pytest.raises(DataError, match=r"carriage return without a line feed.* tr '\\r' '\\n' < mac\.csv"):
        list(read_rows(tmp_path / "mac.csv"))
