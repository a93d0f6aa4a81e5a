"""Spreadsheets (.xlsx, .xls, .ods) as rows of text.

In: a path and, if several sheets have rows, the name of one. Out: records like those of a CSV file; the first may be
the header. The one idea: a cell is the text that a reader of the sheet sees: a whole number has no '.0'.

    |   | text  | label |        ["text", "label"]
    |   | good  | 1.0   |   ->   ["good", "1"]
    |   |       |       |        (empty rows and columns are left out)
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqfit.errors import DataError, did_you_mean

_ABOUT = ("readme", "about", "info", "notes", "license", "legend")


def read_sheet(path: Path, sheet: str | None) -> Iterator[list[str]]:
    """The filled rows of a sheet, all of one width, without empty columns."""
    try:
        import python_calamine
    except ImportError:
        raise DataError(
            f"{path} is a spreadsheet, and python-calamine is not installed",
            "Excel and OpenDocument files are read with that package",
            "Install it with pip install 'seqfit[excel]', or save the sheet as CSV",
        ) from None
    try:
        with python_calamine.CalamineWorkbook.from_path(path) as book:
            cells = book.get_sheet_by_name(_choose(path, book, sheet)).to_python(skip_empty_area=True)
    except python_calamine.CalamineError as error:
        raise DataError(
            f"{path} can't be opened: {error}",
            "It must be a spreadsheet without a password",
            "Open it in a spreadsheet program and save it as .xlsx or .csv",
        ) from error
    rows = [list(map(_text, row)) for row in cells]
    filled = sorted({at for row in rows for at, cell in enumerate(row) if cell})
    for row in rows:
        if any(row):
            yield [row[at] if at < len(row) else "" for at in filled]


def _choose(path: Path, book: Any, sheet: str | None) -> str:
    names: list[str] = list(book.sheet_names)
    if sheet is not None:
        if sheet in names:
            return sheet
        raise DataError(
            f"data.sheet is '{sheet}'",
            f"{path} has the sheets {', '.join(names)}",
            "Set data.sheet to one of them",
            hint=did_you_mean(sheet, names),
        )
    filled = [name for name in names if book.get_sheet_by_name(name).height > 0]
    sheets = [name for name in filled if name.strip().lower() not in _ABOUT] or filled
    if len(sheets) == 1:
        return sheets[0]
    if not sheets:
        raise DataError(
            f"{path} has no rows", "A data set needs at least one row", "Set data.path to a file that has rows"
        )
    sizes = ", ".join(f"'{name}' ({book.get_sheet_by_name(name).height} rows)" for name in sheets)
    raise DataError(
        f"{path} has several sheets with rows: {sizes}",
        "One sheet is read",
        f"Choose one, for example data.sheet='{sheets[0]}'",
    )


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(cell)
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell)
