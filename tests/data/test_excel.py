from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.formats import read_rows
from seqfit.data.layout import FileOptions, find_layout
from seqfit.errors import DataError

openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("python_calamine")


def _book(path: Path, **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_cells_are_what_one_sees(tmp_path: Path) -> None:
    cells = [3, 0.5, True, datetime.datetime(2020, 1, 2), None]
    path = _book(tmp_path / "a.xlsx", data=[["text", "label", "share", "yes", "date", "note"], ["x", *cells], [], []])
    row = {"text": "x", "label": "3", "share": "0.5", "yes": "true", "date": "2020-01-02", "note": ""}
    assert list(read_rows(path)) == [row]


def test_columns_without_a_name_and_without_values_are_left_out(tmp_path: Path) -> None:
    rows = [[None, "text", None, "label", " "], [0, "good", None, 1], [1, "bad", None, 0], [2, "fine", None, 1]]
    path = _book(tmp_path / "a.xlsx", data=rows)
    assert next(read_rows(path)) == {"text": "good", "label": "1"}
    assert "only numbers the rows" in " ".join(find_layout(path, FileOptions()).notes)


def test_a_sheet_without_a_header_is_recognised(tmp_path: Path) -> None:
    path = _book(tmp_path / "a.xlsx", data=[["a long review of a film", 1], ["another long review of it", 0]] * 3)
    assert next(read_rows(path)) == {"column1": "a long review of a film", "column2": "1"}


def test_the_only_sheet_with_rows_is_read(tmp_path: Path) -> None:
    rows = [["text", "label"], ["good", 1], ["bad", 0]]
    path = _book(tmp_path / "a.xlsx", README=[["What this is"]], data=rows, empty=[])
    assert len(list(read_rows(path))) == 2


def test_several_sheets_need_a_name(tmp_path: Path) -> None:
    rows = [["text", "label"], ["good", 1], ["bad", 0]]
    path = _book(tmp_path / "a.xlsx", train=rows, test=rows[:2])
    with pytest.raises(DataError, match=r"'train' \(3 rows\), 'test' \(2 rows\).*data\.sheet='train'"):
        list(read_rows(path))
    assert len(list(read_rows(path, FileOptions(sheet="test")))) == 1
    with pytest.raises(DataError, match=r"data\.sheet is 'tset'.*Did you mean 'test'"):
        list(read_rows(path, FileOptions(sheet="tset")))


def test_without_calamine_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _book(tmp_path / "a.xlsx", data=[["text"], ["x"]])
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(DataError, match=r"pip install 'seqfit\[excel\]'"):
        list(read_rows(path))


def test_text_called_xlsx_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_text("text,label\ngood,1\n", "utf-8")
    assert list(read_rows(tmp_path / "a.xlsx")) == [{"text": "good", "label": "1"}]


def test_a_corrupted_workbook_is_an_error(tmp_path: Path) -> None:
    whole = _book(tmp_path / "a.xlsx", data=[["text"], ["x"]]).read_bytes()
    (tmp_path / "b.xls").write_bytes(b"\xd0\xcf\x11\xe0" + whole[4:200])
    with pytest.raises(DataError, match=r"b\.xls can't be opened"):
        list(read_rows(tmp_path / "b.xls"))
