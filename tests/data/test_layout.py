from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.data.formats import read_rows
from seqfit.data.layout import FileOptions, detect_format, find_layout
from seqfit.data.rows import BadRow
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
        ("a.jsonl", '{\n "a": [{"b": 1}]\n}', "json"),
        ("a.CSV", "a|b\n1|2\n", "csv"),
        ("a.tsv", "a\tb\n", "tsv"),
        ("a.csv", '{"a": 1}\n{"a": 2}\n', "jsonl"),
    ],
)
def test_the_format_is_found_by_ending_and_content(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert detect_format(_write(tmp_path, name, text)) == expected


def test_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.format is 'jsonk'.*Did you mean 'json'"):
        read_rows(_write(tmp_path, "a.txt", "x"), FileOptions("jsonk"))


def test_columns_name_a_file_without_a_header(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", "3,Fears\n4,Race\n")
    named = FileOptions(columns=("label", "title"))
    assert list(read_rows(path, named)) == [{"label": "3", "title": "Fears"}, {"label": "4", "title": "Race"}]
    assert next(read_rows(path)) == {"column1": "3", "column2": "Fears"}
    with pytest.raises(DataError, match=r"data\.columns has 1 names \(label\), and .* has 2 columns: '3', 'Fears'"):
        find_layout(path, FileOptions(columns=("label",)))


def test_columns_of_a_file_that_names_its_own_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl is jsonl.*Remove data\.columns"):
        read_rows(_write(tmp_path, "a.jsonl", '{"a": 1}\n'), FileOptions(columns=("b",)))


def test_columns_of_a_file_that_seems_to_have_a_header_are_an_open_question(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", "class,tweet\n3,Fears\n4,Race\n")
    with pytest.raises(
        DataError, match=r"label='3', title='Fears'; without one it is label='class'.*data\.header=true"
    ):
        find_layout(path, FileOptions(columns=("label", "title")))
    for header, first in ((True, "3"), (False, "class")):
        assert next(read_rows(path, FileOptions(header=header, columns=("label", "title"))))["label"] == first
    assert next(read_rows(path, FileOptions(columns=("class", "tweet"))))["class"] == "3"


def test_a_first_line_that_may_be_either_is_shown_in_both_readings(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", "dog,perro\ncat,gato\n")
    with pytest.raises(DataError, match=r"dog='cat', perro='gato'; without one it is column1='dog', column2='perro'"):
        list(read_rows(path))
    assert list(read_rows(path, FileOptions(header=True))) == [{"dog": "cat", "perro": "gato"}]
    assert len(list(read_rows(path, FileOptions(header=False)))) == 2


def test_nameless_and_repeated_columns_get_names(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.csv", "text,label,label,,\ngood,1,2,x,\nbad,0,1,,\n")
    assert next(read_rows(path)) == {"text": "good", "label": "1", "label_2": "2", "column4": "x"}
    assert find_layout(path, FileOptions()).notes == ("a.csv: 1 column without name and values left out",)


@pytest.mark.parametrize("header", [",text,n", "Unnamed: 0,text,n", "text,n"])
def test_the_index_of_pandas_or_r_is_left_out_with_a_note(tmp_path: Path, header: str) -> None:
    path = _write(tmp_path, "a.csv", f"{header}\n0,good,1\n1,bad,0\n2,fine,1\n")
    assert next(read_rows(path)) == {"text": "good", "n": "1"}
    assert "only numbers the rows" in find_layout(path, FileOptions()).notes[0]


def test_a_file_of_the_same_set_has_the_known_columns(tmp_path: Path) -> None:
    known = FileOptions(known=("dog", "perro"))
    with_header = _write(tmp_path, "a.csv", "dog,perro\ncat,gato\n")
    without = _write(tmp_path, "b.csv", "cat,gato\nsun,sol\n")
    assert list(read_rows(with_header, known)) == [{"dog": "cat", "perro": "gato"}]
    assert next(read_rows(without, known)) == {"dog": "cat", "perro": "gato"}


def test_lines_of_unequal_length_without_a_header_have_empty_fields_at_the_end(tmp_path: Path) -> None:
    lines = "".join(f"{n}\tsource {n}" + f"\tref {n}" * (1 + n % 3) + "\n" for n in range(9))
    path = _write(tmp_path, "a.txt", lines)
    rows = list(read_rows(path))
    assert rows[0] == {"column1": "0", "column2": "source 0", "column3": "ref 0", "column4": "", "column5": ""}
    assert "lines have 3 to 5 fields" in find_layout(path, FileOptions()).notes[0]


def test_the_index_that_pandas_keeps_in_parquet_is_left_out(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = [{"a": number, "__index_level_0__": number} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet")) == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert "__index_level_0__" in find_layout(tmp_path / "a.parquet", FileOptions()).notes[0]


def test_a_value_in_a_column_that_seemed_empty_is_a_bad_row(tmp_path: Path) -> None:
    rows = "".join(f"text {n},{n},\n" for n in range(1200))
    read = list(read_rows(_write(tmp_path, "a.csv", f"text,label,\n{rows}late,1,value\n")))
    assert list(read[0]) == ["text", "label"]
    assert [row.cause for row in read if isinstance(row, BadRow)] == ["a value in a column without a name"]
