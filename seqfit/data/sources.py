"""Readers: a file in any known format -> rows, lazily.

In: a path and its format. Out: rows, dictionaries from column to value, one at a time; a file of a million rows
takes no more memory than one of ten. The one idea: `read_rows` is the only entrance, and whatever is wrong with a
file is an error that names the file, the line and what to change.

    answers.psv   id|answer        -> {"id": "7", "answer": "because"}
                  7|because
    news.csv      3,Fears          -> {"label": "3", "title": "Fears"}       (no header; columns: [label, title])
    train.en, train.de             -> {"en": "Two dogs.", "de": "Zwei Hunde."}

Separated files quote as RFC 4180 says: a field that begins with a double quote ends at the next single one, and two
of them are one character. Tab-separated files are written with and without this; `_is_quoted` looks at the file.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.data.json_stream import is_squad, read_json, read_squad
from seqfit.data.rows import Row
from seqfit.data.text_files import read_chunks, read_lines, require_file
from seqfit.errors import DataError, complain, did_you_mean

FORMATS = ("json", "jsonl", "csv", "tsv", "psv", "parquet", "squad", "parallel")
ENDINGS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".psv": "psv",
    ".parquet": "parquet",
}
_SEPARATORS = {"csv": ",", "tsv": "\t", "psv": "|"}
_PARQUET_BATCH_ROWS = 1000
_LONGEST_FIELD = 1 << 27  # the csv module stops at 128 KiB, and a book is longer
_SAMPLE_LINES = 1000


def ending(path: Path) -> str:
    """The file's ending without .gz, in small letters: train.csv.gz -> .csv."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def detect_format(path: Path) -> str:
    """The format by ending, then by content: SQuAD is JSON, and .json files often hold JSON lines."""
    require_file(path)
    known = ENDINGS.get(ending(path))
    if known is None:
        raise DataError(
            complain(
                f"{path} ends in '{path.suffix}'",
                f"The format is found by the ending, one of {', '.join(ENDINGS)} (and .gz after it, except Parquet)",
                f"Set data.format to one of {', '.join(FORMATS)}",
            )
        )
    if known == "json":
        return "jsonl" if _has_json_lines(path) else "squad" if is_squad(path) else "json"
    if known == "csv":
        return _separated_by(path)
    return known


def _has_json_lines(path: Path) -> bool:
    """Whether the first line is a whole object and the second begins one; the file may have no line ends at all."""
    first, _, rest = next(read_chunks(path), "").partition("\n")
    try:
        return rest.startswith("{") and isinstance(json.loads(first), dict)
    except json.JSONDecodeError:
        return False


def _separated_by(path: Path) -> str:
    """.csv is also written with tabs or |; a first line with a comma settles it."""
    first = next(read_lines(path), "")
    if "," in first:
        return "csv"
    return next((name for name, separator in _SEPARATORS.items() if separator in first), "csv")


def read_rows(path: Path, file_format: str = "auto", columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of one file; `columns` names those of a separated file without a header line."""
    require_file(path)
    if file_format == "auto":
        file_format = detect_format(path)
    match file_format:
        case "json":
            rows = read_json(path)
        case "jsonl":
            rows = _read_jsonl(path)
        case "squad":
            rows = read_squad(path)
        case "parquet":
            rows = _read_parquet(path)
        case "csv" | "tsv" | "psv":
            rows = _read_separated(path, file_format, columns)
        case _:
            raise DataError(
                complain(
                    f"data.format is '{file_format}'",
                    f"One file can be {', '.join(FORMATS[:-1])}; parallel text is a pair of files",
                    "Set data.format to one of them, or for a pair data.path to its folder and data.languages",
                )
                + did_you_mean(file_format, FORMATS)
            )
    return _not_empty(rows, str(path))


def _not_empty(rows: Iterator[Row], name: str) -> Iterator[Row]:
    first = next(rows, None)
    if first is None:
        raise DataError(complain(f"{name} has no rows", "A data set needs at least one", "Set data.path to another"))
    yield first
    yield from rows


def _read_jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                complain(
                    f"{path}, line {number}, column {error.colno}: {error.msg.lower()}",
                    "Every line must be a JSON object",
                    "Correct the line (data.format=json if one document spans the lines)",
                )
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                complain(
                    f"{path}, line {number}: {line.strip()[:60]!r} is no object",
                    "Every line must be a JSON object",
                    'Write {"column": value}',
                )
            )
        yield row


def _read_separated(path: Path, file_format: str, columns: Sequence[str] | None) -> Iterator[Row]:
    fields = _fields(path, file_format)
    names = list(columns) if columns else _header(path, next(fields, (1, []))[1])
    for line, values in fields:
        if len(values) != len(names):
            raise DataError(
                complain(
                    f"{path}, line {line}: {len(values)} fields, but {len(names)} columns ({', '.join(names)})",
                    f"Every row of a {file_format} file has all columns",
                    "Correct the line, or set data.format or data.columns if the file is laid out otherwise",
                )
            )
        yield dict(zip(names, values, strict=True))


def _header(path: Path, names: list[str]) -> list[str]:
    names = [name.strip() for name in names]
    if "" in names or len(set(names)) < len(names):
        raise DataError(
            complain(
                f"{path}: the first line is {names}",
                "The first line must name every column, each once",
                "Set data.columns to a list of names if the file has no header line",
            )
        )
    return names


def _fields(path: Path, file_format: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each record that is not blank."""
    csv.field_size_limit(_LONGEST_FIELD)
    quoted = file_format != "tsv" or _is_quoted(path)
    reader = csv.reader(
        read_lines(path),
        delimiter=_separator(path, file_format),
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=True,
    )
    line = 1
    try:
        for values in reader:
            if values:
                yield line, values
            line = reader.line_num + 1
    except csv.Error as error:
        if "new-line character" in str(error):
            raise DataError(
                complain(
                    f"{path}, record at line {line}: a carriage return without a line feed",
                    "A line ends in \\n or \\r\\n",
                    f"Convert it, for example: tr '\\r' '\\n' < {path.name} > unix-{path.name}",
                )
            ) from error
        raise DataError(
            complain(
                f"{path}, record at line {line}: {error}",
                "A field that begins with a double quote ends with one, and a quote inside is written twice",
                "Correct the quotes there",
            )
        ) from error


def _separator(path: Path, file_format: str) -> str:
    """Spreadsheets of half of Europe write csv with semicolons."""
    if file_format == "csv":
        first = next(read_lines(path), "")
        return ";" if ";" in first and "," not in first else ","
    return _SEPARATORS[file_format]


def _is_quoted(path: Path) -> bool:
    """Whether every field of the first lines that begins with a quote is quoted as a whole."""
    suspects = [
        field
        for line in itertools.islice(read_lines(path), _SAMPLE_LINES)
        for field in line.rstrip("\r\n").split("\t")
        if field.startswith('"')
    ]
    return bool(suspects) and all(
        len(field) > 1 and field.endswith('"') and '"' not in field[1:-1].replace('""', "") for field in suspects
    )


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(
            complain(f"{path} does not open: {error}", "It must be a Parquet file", "Fetch it again or set data.format")
        ) from error
    with file:
        for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS):
            yield from batch.to_pylist()


def read_parallel(files: Mapping[str, Path]) -> Iterator[Row]:
    """Line n of each file is one row: {"en": train.en.gz, "de": train.de.gz}."""
    for path in files.values():
        require_file(path)
    return _not_empty(_parallel_lines(files), " and ".join(str(path) for path in files.values()))


def _parallel_lines(files: Mapping[str, Path]) -> Iterator[Row]:
    lines = [read_lines(path) for path in files.values()]
    for number, texts in enumerate(itertools.zip_longest(*lines), 1):
        if None in texts:
            names = " and ".join(str(path) for path in files.values())
            short = [path.name for path, text in zip(files.values(), texts, strict=True) if text is None]
            raise DataError(
                complain(
                    f"{names}: {', '.join(short)} ends before line {number}",
                    "Parallel files have equally many lines, line n translating line n",
                    "Fetch both files again, or check that data.languages names a pair",
                )
            )
        yield _pair(files, texts)


def _pair(files: Mapping[str, Path], texts: Sequence[Any]) -> Row:
    return {language: str(text).rstrip("\r\n") for language, text in zip(files, texts, strict=True)}
