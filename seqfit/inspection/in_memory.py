"""Data of a Python program as a Parquet file: what `seqfit.train(data=frame)` trains on.

In: a list of dicts, a DataFrame (pandas, polars), an Arrow table, a `datasets.Dataset`, or a mapping from splits to
such objects (such as a `DatasetDict`). Out: `Stored`, the file or folder in the cache and a label for reports.

    [{"text": "a", "label": 1}, {"text": None}]  ->  ~/.cache/seqfit/in-memory/9f3c.../data.parquet
    {"train": frame, "test": other}              ->  ~/.cache/seqfit/in-memory/51e0.../train.parquet, test.parquet

The one idea: the folder's name is a hash of the content, so the same data is written once, and a run that is resumed
or evaluated in another process finds the data it was trained on. None, NaN and NaT are missing values. A library is
used only if one of its objects is given, so nothing here imports pandas, polars or datasets.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.cache import cache_root
from seqfit.data import name_words
from seqfit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_LIBRARIES = ("pandas", "polars", "pyarrow", "datasets")
_TAKEN = "a list of dicts, a pandas or polars DataFrame, a pyarrow Table, or a datasets.Dataset or DatasetDict"


@dataclass(frozen=True)
class Stored:
    path: Path
    label: str


def is_in_memory(given: object) -> bool:
    """Whether it is data rather than a path or a recipe. A mapping is data if its keys are splits."""
    if isinstance(given, Mapping):
        is_split = (isinstance(name, str) and name_words.split_of(name) is not None for name in given)
        return bool(given) and all(map(is_in_memory, given.values())) and all(is_split)
    return isinstance(given, list) or _library_of(given) in _LIBRARIES


def store_data(given: object) -> Stored:
    parts = dict(given) if isinstance(given, Mapping) else {"data": given}
    names = {name: name if name == "data" else str(name_words.split_of(name)) for name in parts}
    tables = _as_whole_numbers({names[name]: _build_table(part) for name, part in parts.items()}, parts)
    label = _name_kind(next(iter(parts.values())))
    folder = _write(tables)
    return Stored(folder / "data.parquet" if list(tables) == ["data"] else folder, label)


def _library_of(given: object) -> str:
    return type(given).__module__.partition(".")[0]


def _name_kind(given: object) -> str:
    return "rows" if isinstance(given, list) else type(given).__name__


def _write(tables: Mapping[str, pa.Table]) -> Path:
    import pyarrow.parquet as pq

    place = cache_root() / "in-memory"
    digest = hashlib.sha256()
    try:
        place.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".", dir=place))
        try:
            for name, table in sorted(tables.items()):
                file = draft / f"{name}.parquet"
                pq.write_table(table, file)
                digest.update(name.encode() + hashlib.sha256(file.read_bytes()).digest())
            folder = place / digest.hexdigest()[:40]
            if not folder.is_dir():  # if another process was faster, the content is the same
                os.rename(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"{place}: {error.strerror}",
            "Data in memory is written there once, so that a run can be resumed and evaluated",
            "Free some space, or set the environment variable SEQFIT_CACHE to a folder on another disk",
        ) from error
    return folder


def _build_table(given: object) -> pa.Table:
    import pyarrow as pa

    table = pa.table({name: _build_column(name, values) for name, values in _list_columns(given)})
    if not table.num_rows or not table.num_columns:
        raise DataError(
            f"data ({_name_kind(given)}) has {table.num_rows} rows and {table.num_columns} columns",
            "A data set needs at least one of each",
            "Give data that has rows and columns",
        )
    return table


def _list_columns(given: Any) -> list[tuple[str, Any]]:
    """Names, each once, and values: lists, pandas series or Arrow columns."""
    import pyarrow as pa

    library, kind = _library_of(given), type(given).__name__
    if isinstance(given, list) and all(isinstance(row, Mapping) for row in given):
        names = dict.fromkeys(key for row in given for key in row)
        return _name_apart([(name, [row.get(name) for row in given]) for name in names])
    if library == "pandas" and kind == "DataFrame":
        # An index with a name is a column, as after groupby; one without a name numbers the rows and is dropped.
        levels = [n for n, name in enumerate(given.index.names) if name is not None and name not in given.columns]
        index = [(given.index.names[level], given.index.get_level_values(level)) for level in levels]
        return _name_apart([*index, *((name, given.iloc[:, n]) for n, name in enumerate(given.columns))])
    if library == "datasets" and kind == "Dataset":
        table = given.with_format("arrow")[:]
        columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
        for name, values in columns.items():  # integers of a ClassLabel column become their names, as in a Hub data set
            if (labels := getattr(given.features[name], "names", None)) is not None:
                columns[name] = [None if n is None or n < 0 else labels[n] for n in values.to_pylist()]
        return _name_apart(list(columns.items()))
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        given = (given.collect() if kind == "LazyFrame" else given).to_arrow()
    elif isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    elif isinstance(given, pa.RecordBatchReader):
        given = given.read_all()
    if not isinstance(given, pa.Table):
        raise DataError(
            f"data is a {type(given).__module__}.{kind}",
            f"It can be {_TAKEN}, or the path of a file or folder",
            "Convert it to one of these; list(...) converts an iterator of dicts",
        )
    return _name_apart(list(zip(given.column_names, given.columns, strict=True)))


def _name_apart(columns: Sequence[tuple[object, Any]]) -> list[tuple[str, Any]]:
    """Every name as text, ('a', 'b') -> 'a_b', 0 -> '0'; a repeated name gets a number, 'text_2'."""
    named: dict[str, Any] = {}
    for number, (name, values) in enumerate(columns, 1):
        text = "_".join(str(part) for part in name if part != "") if isinstance(name, tuple) else str(name)
        text = text.strip() or f"column{number}"
        counter, free = 1, text
        while free in named:
            counter += 1
            free = f"{text}_{counter}"
        named[free] = values
    return list(named.items())


def _as_whole_numbers(tables: dict[str, pa.Table], parts: Mapping[str, object]) -> dict[str, pa.Table]:
    """pandas stores whole numbers with missing ones as 1.0, 2.0, NaN: as text they would be other labels.

    If only one split has missing numbers, the column is converted in all of them.
    """
    import pyarrow as pa

    if not all(_library_of(part) == "pandas" for part in parts.values()):
        return tables
    for name in dict.fromkeys(name for table in tables.values() for name in table.column_names):
        holders = {part: table for part, table in tables.items() if name in table.column_names}
        columns = {part: table.column(name) for part, table in holders.items()}
        if not any(pa.types.is_integer(column.type) or column.null_count for column in columns.values()):
            continue
        if any(pa.types.is_floating(column.type) for column in columns.values()):
            whole = {part: _cast_to_integers(column) for part, column in columns.items()}
            for part, column in whole.items() if None not in whole.values() else ():
                position = tables[part].column_names.index(name)
                tables[part] = tables[part].set_column(position, name, column)
    return tables


def _cast_to_integers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """None if there are fractions, or no numbers at all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        return None
    try:
        return pc.cast(column, pa.int64(), safe=True)
    except pa.ArrowInvalid:
        return None


def _build_column(name: str, values: Any) -> pa.ChunkedArray:
    """Categories become their values, dates and times become text, NaN becomes a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(values, pa.ChunkedArray):
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            array = pa.array(_to_texts(name, list(values)), pa.string())
        values = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if pa.types.is_temporal(values.type) or pa.types.is_decimal(values.type):
        return pa.chunked_array([pa.array(_format_times(values.to_pylist()), pa.string())])
    return values


def _to_texts(name: str, values: list[Any]) -> list[str | None]:
    """Values of several types as text, as a template would write them."""
    filled = [value for value in values if not _is_missing(value)]
    nested = [value for value in filled if isinstance(value, Mapping | list | tuple | set | bytes)]
    if nested or any(type(value).__module__ == "numpy" and getattr(value, "ndim", 0) for value in filled):
        types = sorted({type(value).__name__ for value in filled})
        raise DataError(
            f"The column '{name}' mixes values of different types ({', '.join(types)})",
            "Lists and records of one column must have the same type in all rows, and can't be mixed with text and "
            "numbers",
            "Convert them to one type, or write the rows to a .jsonl file, which may mix types, and give its path",
        )
    texts: list[str | None] = []
    for value in values:
        text = value if isinstance(value, str) else str(value)
        is_bool = isinstance(value, bool) or type(value).__name__ == "bool"  # numpy's
        texts.append(None if _is_missing(value) else text.lower() if is_bool else text)
    return texts


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA, which is neither equal to itself nor a truth value."""
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _format_times(values: list[Any]) -> list[str | None]:
    """'2026-01-31' if no value has a time of day, else '2026-01-31 17:05:00'."""
    moments = [value for value in values if isinstance(value, datetime)]
    are_days = all(moment.time() == time() and moment.tzinfo is None for moment in moments)

    def write(value: Any) -> str | None:
        if isinstance(value, datetime):
            return value.date().isoformat() if are_days else value.isoformat(sep=" ")
        return None if value is None else value.isoformat() if isinstance(value, date) else str(value)

    return [write(value) for value in values]
