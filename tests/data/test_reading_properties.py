"""Any table that csv, json, pyarrow or pandas writes is read back as it was written, or refused; never other content.

What looks like other content is not asked for: a tab or a header inside a quoted cell of a tab-separated
file, and cells that are quoted although they need it not.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqfit.data.rows import BadRow
from seqfit.data.tables import find_tables
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NAMES = ["text", "label", "id", "sentence1", "a b", "Görüş", "文", "Body ID", "x1", "q.a"]
WORDS = [
    *("good", "it's", 'say "hi"', '"', "a,b", "x;y", "p|q", "ñandú", "好的", "\u2028", "1", "-2.5", "<b>", "\\", "'"),
    *("[1]", "{a}", "#", "@u", "http://x.y/z", "2019-01-02", "O", "\u00a0", "\x85"),
]
Table = tuple[list[str], list[list[Any]]]
COUNTER = itertools.count()


def texts(words: list[str] = WORDS) -> st.SearchStrategy[str]:
    lines = st.lists(st.sampled_from(words), max_size=5).map(" ".join)
    return st.one_of(lines, lines, st.lists(lines, min_size=2, max_size=3).map("\n".join), st.integers().map(str))


@st.composite
def tables(draw: st.DrawFn, cells: st.SearchStrategy[Any] | None = None) -> Table:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    width = len(names)
    cells = texts() if cells is None else cells
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=6))
    return names, [row for row in rows if any(str(cell).strip() for cell in row)] or [["x"] * width]


def new_file(folder: Path, ending: str) -> Path:
    """A name of its own: what is known about a file is remembered by its name, size and time."""
    return folder / f"table{next(COUNTER)}.{ending}"


def read(path: Path, **fields: Any) -> list[dict[str, Any]] | None:
    """The rows; None where the file, or one of its rows, is refused."""
    try:
        rows = [row for table in find_tables(SourceRecipe(path=str(path), **fields)).values() for row in table.read()]
    except DataError:
        return None
    return None if any(isinstance(row, BadRow) for row in rows) else rows


def as_dicts(names: list[str], rows: list[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def write_csv(path: Path, table: Table, encoding: str = "utf-8", **dialect: Any) -> None:
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, **dialect).writerows([table[0], *table[1]])


@FEW
@given(
    tables(),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]),
)
def test_what_the_csv_module_writes_is_read_back_or_refused(
    tmp_path: Path, table: Table, separator: str, quoting: Any, line_end: str, encoding: str
) -> None:
    path = new_file(tmp_path, {"\t": "tsv", "|": "psv"}.get(separator, "csv"))
    write_csv(path, table, encoding, delimiter=separator, quoting=quoting, lineterminator=line_end)
    expected = as_dicts(*table)
    assert read(path, header=True, format=path.suffix[1:]) in (expected, None)
    assert read(path, header=True) in (expected, None)
    assert read(path) in (expected, None)


@FEW
@given(tables(texts(["good", 'say "hi"', '5"', "a,b", "x;y", "好的", "''"]).map(lambda text: text.replace("\n", " "))))
def test_tabs_without_quoting_are_read_back_or_refused(tmp_path: Path, table: Table) -> None:
    path = new_file(tmp_path, "tsv")
    path.write_text("".join("\t".join(row) + "\n" for row in [table[0], *table[1]]), "utf-8")
    assert read(path, header=True) in (as_dicts(*table), None)


CODE_PAGES = {
    "cp1252": ["señor", "über", "déjà", "naïve", "it’s", "£5", "–"],
    "cp1250": ["žluťoučký", "kůň", "příliš", "úpěl", "ďábelské"],
    "cp1251": ["Сегодня", "хорошая", "погода", "привет"],
    "gb18030": ["今天天气很好", "我们去公园", "商务大床房"],
    "cp932": ["今日は天気がいい", "これはペンです", "ありがとう"],
    "cp949": ["오늘은", "날씨가", "좋아서", "산책을", "갔습니다"],
}


@FEW
@given(st.sampled_from(sorted(CODE_PAGES)), st.data())
def test_other_encodings_are_recognised_from_a_few_lines(tmp_path: Path, encoding: str, data: st.DataObject) -> None:
    words = CODE_PAGES[encoding]
    table = (["text", "label"], [[" ".join(words), "1"] for _ in range(3)])
    table[1].extend(data.draw(st.lists(st.tuples(texts([*words, "a,b", '"']), st.sampled_from("01")).map(list))))
    path = new_file(tmp_path, "csv")
    write_csv(path, table, encoding)
    assert read(path) == as_dicts(*table)
    assert read(path, encoding=encoding) == as_dicts(*table)


VALUES = st.one_of(
    texts(),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
    st.fixed_dictionaries({"k": st.integers()}),
)


@FEW
@given(tables(VALUES), st.sampled_from([None, 2]), st.booleans())
def test_what_the_json_module_writes_is_read_back(
    tmp_path: Path, table: Table, indent: int | None, ascii_only: bool
) -> None:
    rows = as_dicts(*table)
    layouts: dict[str, Any] = {"list": rows, "member": {"version": "1", "data": rows}}
    for content in layouts.values():
        path = new_file(tmp_path, "json")
        path.write_text(json.dumps(content, indent=indent, ensure_ascii=ascii_only), "utf-8")
        assert read(path) == rows
    path = new_file(tmp_path, "jsonl")
    path.write_text("".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows), "utf-8")
    assert read(path) == rows
    if len(rows) > 1:  # one document may be anything
        path = new_file(tmp_path, "json")
        path.write_text("\n".join(json.dumps(row, indent=2) for row in rows), "utf-8")
        assert read(path) in (rows, None)


@FEW
@given(tables(texts()), st.sampled_from(["records", "split", "index", "columns", "table", "values"]))
def test_what_pandas_writes_as_json_is_read_back_or_refused(tmp_path: Path, table: Table, orient: Any) -> None:
    pandas = pytest.importorskip("pandas")
    path = new_file(tmp_path, "json")
    pandas.DataFrame(table[1], columns=table[0]).to_json(path, orient=orient)
    found = read(path)
    if orient == "values":
        numbered = [f"column{number}" for number in range(1, len(table[0]) + 1)]
        assert found in (as_dicts(numbered, table[1]), as_dicts(table[1][0], table[1][1:]), None)
    else:
        expected = as_dicts(*table)
        extra = {"id", "index"} - set(table[0])
        stripped = None if found is None else [{k: v for k, v in row.items() if k not in extra} for row in found]
        assert stripped in (expected, None) or ("id" in table[0] and orient == "index")


@FEW
@given(tables(), st.booleans())
def test_what_pandas_writes_as_csv_is_read_back_without_its_index(
    tmp_path: Path, table: Table, has_index: bool
) -> None:
    pandas = pytest.importorskip("pandas")
    path = new_file(tmp_path, "csv")
    pandas.DataFrame(table[1], columns=table[0]).to_csv(path, index=has_index)
    assert read(path, header=True) in (as_dicts(*table), None)
    assert read(path) in (as_dicts(*table), None)


@FEW
@given(
    tables(st.one_of(texts(), st.integers(-(2**50), 2**50), st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), st.none()))
)
def test_a_sheet_is_read_back_with_whole_numbers_as_such(tmp_path: Path, table: Table) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    cells = [[text if not str(text).startswith("=") else "x" for text in row] for row in [table[0], *table[1]]]
    for row in cells:
        book.active.append(row)
    path = new_file(tmp_path, "xlsx")
    book.save(path)
    shown: Callable[[Any], str] = lambda cell: (  # noqa: E731
        "" if cell is None else str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    )
    expected = [{name: shown(cell) for name, cell in zip(table[0], row, strict=True)} for row in cells[1:]]
    found = read(path, header=True)
    assert found is None or found == [row for row in expected if any(row.values())]


@FEW
@given(tables(st.one_of(texts(), st.none())))
def test_parquet_is_read_back_as_it_was_written(tmp_path: Path, table: Table) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = as_dicts(*table)
    path = new_file(tmp_path, "parquet")
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert read(path) == rows
