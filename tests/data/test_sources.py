from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from seqfit.data.formats import read_file, read_parallel_files, read_rows
from seqfit.data.layout import FileOptions
from seqfit.data.rows import BadRow
from seqfit.errors import DataError


def _write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, "utf-8", newline="")
    return folder / name


@pytest.mark.parametrize("text", ["a\tb\n1\t2\n", "a|b\n1|2\n", "a;b\n1;2\n", "sep=;\na;b\n1;2\n", "a,b\r1,2\r"])
def test_a_csv_file_may_have_any_separator_and_line_end(tmp_path: Path, text: str) -> None:
    assert list(read_rows(_write(tmp_path, "a.csv", text))) == [{"a": "1", "b": "2"}]


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


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a,b\n1,2\n3\n4,5\n", "1 field instead of 2"),
        ("a,b\n1,2\n3,4,5\n", "3 fields instead of 2"),
        ("a,b\n1,2\na,b\n3,4\n", "a repeated header"),
        ('a,b\n"1,5,6",2\n3,"x"y,z\n"4,1",5\n', "a quote that does not end its field"),
    ],
)
def test_a_broken_line_is_a_bad_row(tmp_path: Path, text: str, cause: str) -> None:
    path = _write(tmp_path, "a.csv", text)
    bad = [row for row in read_rows(path) if isinstance(row, BadRow)]
    assert [row.cause for row in bad] == [cause]
    assert bad[0].detail.startswith("line 3")
    with pytest.raises(DataError, match=cause):
        list(read_file(path))


@pytest.mark.parametrize("text", ["", "text,label\n"])
def test_a_file_without_rows_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="has no rows"):
        list(read_rows(_write(tmp_path, "a.csv", text)))


def test_a_field_may_be_longer_than_the_csv_module_allows(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", f"a,b\n1,{'x' * 300_000}\n")
    assert len(next(read_rows(path))["b"]) == 300_000


@pytest.mark.parametrize(
    ("line", "cause"),
    [('{"a": }', "not JSON"), ("[1]", "not an object"), ("5", "not an object"), ("{'a': 1}", "not JSON")],
)
def test_a_wrong_json_line_is_a_bad_row(tmp_path: Path, line: str, cause: str) -> None:
    rows = list(read_rows(_write(tmp_path, "a.jsonl", f'{{"a": 1}}\n\n{line}\n{{"a": NaN}}\n')))
    assert [row.cause for row in rows if isinstance(row, BadRow)] == [cause]
    assert rows[1].detail.startswith("line 3")
    assert len(rows) == 3


def test_arrays_and_texts_of_json_lines_are_rows(tmp_path: Path) -> None:
    arrays = _write(tmp_path, "a.jsonl", '["x", 1]\n["y", 2]\n["z"]\n')
    rows = list(read_rows(arrays))
    assert rows[:2] == [{"column1": "x", "column2": 1}, {"column1": "y", "column2": 2}]
    assert rows[2].cause == "1 values instead of 2"
    assert list(read_rows(_write(tmp_path, "b.jsonl", '"x"\n"y"\n'))) == [{"text": "x"}, {"text": "y"}]


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
        list(read_rows(_write(tmp_path, "a.parquet", "PAR1 nothing of the kind")))


@pytest.mark.parametrize("is_file", [True, False])
def test_arrow_files_are_read(tmp_path: Path, is_file: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pylist([{"a": 1}, {"a": 2}])
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)
    assert list(read_rows(tmp_path / "a.arrow")) == [{"a": 1}, {"a": 2}]


def test_parallel_files_give_one_row_per_line(tmp_path: Path) -> None:
    (tmp_path / "t.en.gz").write_bytes(gzip.compress(b"Two dogs.\nA\rcat.\n"))
    german = _write(tmp_path, "t.de", "Zwei Hunde.\r\nEine Katze.")
    rows = list(read_parallel_files({"en": tmp_path / "t.en.gz", "de": german}))
    assert rows == [{"en": "Two dogs.", "de": "Zwei Hunde."}, {"en": "A\rcat.", "de": "Eine Katze."}]


def test_parallel_files_of_different_length_are_an_error(tmp_path: Path) -> None:
    files = {"en": _write(tmp_path, "t.en", "a\nb\n"), "de": _write(tmp_path, "t.de", "a\n")}
    with pytest.raises(DataError, match=r"t\.de ends before line 2"):
        list(read_parallel_files(files))


def test_every_row_of_the_real_psv_files_has_seven_columns(shared_data: Path) -> None:
    counts = {}
    for split in ("train", "valid", "test"):
        rows = list(read_rows(shared_data / "causal_qa" / f"causalqa_{split}.psv"))
        assert {len(row) for row in rows} == {7}
        assert not any('""' in text or text.startswith('"Since') for row in rows for text in row.values())
        counts[split] = len(rows)
    assert counts == {"train": 7148, "valid": 912, "test": 959}


def test_the_real_csv_without_a_header_is_read_whole(shared_data: Path) -> None:
    rows = list(read_rows(shared_data / "ag_news" / "test.csv", FileOptions(columns=("label", "title", "description"))))
    assert len(rows) == 7600
    assert {row["label"] for row in rows} == {"1", "2", "3", "4"}


def test_real_parallel_text_is_read_whole(shared_data: Path) -> None:
    folder = shared_data / "multi30k"
    rows = list(read_parallel_files({"en": folder / "val.en.gz", "de": folder / "val.de.gz"}))
    assert len(rows) == 1014
    assert rows[0]["de"].startswith("Eine Gruppe von Männern")
