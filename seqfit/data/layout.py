"""The layout of a file: format, encoding, separator, header and column names.

In: a path and the recipe's options for it (`FileOptions`). Out: `FileLayout`, with notes on what was detected. The one
idea: everything about a file is detected once, from its beginning; guessing, splitting and training all read the file
with the same layout.

    news.csv   3,Fears      FileLayout(names=("column1", "column2"), notes=("news.csv: the first line is a row ...",))
               4,Race
    dogs.csv   dog,perro    an error: data.header=true or data.header=false, with the first row in both readings
               cat,gato
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from seqfit.data.archives import plain_file_name
from seqfit.data.content import (
    SAMPLE_LINES,
    SAMPLE_ROWS,
    Verdict,
    classify_first_row,
    is_index,
    name_columns,
    recognise_format,
    refuse_tokens,
    shorten_cell,
)
from seqfit.data.excel import read_sheet
from seqfit.data.json_stream import find_json_layout, is_squad
from seqfit.data.separated import SEPARATORS, Dialect, find_dialect, find_dialect_by_content, read_separated_records
from seqfit.data.text_files import find_encoding, read_beginning, read_text_lines
from seqfit.errors import DataError, HeaderUnsure, did_you_mean
from seqfit.paths import require_file

FORMATS = ("json", "jsonl", "csv", "tsv", "psv", "parquet", "excel", "squad", "labelled", "classes", "parallel")
ENDINGS = {
    ".json": "json",
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".csv": "csv",
    **dict.fromkeys((".tsv", ".tab"), "tsv"),
    ".psv": "psv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), "excel"),
}
_SAMPLE_CHARACTERS = 1 << 23
_MOST_RAGGED = 20  # columns
_FEWEST_BELOW_TITLE = 3  # columns of a table; of two, a line with one field may be a label whose text is missing
_RAGGED_SHARE = 0.2  # if more lines than this have another number of fields, that is intended
PANDAS_INDEX = "__index_level_0__"


@dataclass(frozen=True)
class FileOptions:
    """The recipe's options for its files; None and 'auto' are detected."""

    format: str = "auto"
    encoding: str = "auto"
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    sheet: str | None = None
    known: tuple[str, ...] = ()  # the columns of another file of the same set


@dataclass(frozen=True)
class FileLayout:
    format: str
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the columns that are kept, unless each row names them
    kept: tuple[int, ...] = ()  # their positions
    empty: tuple[int, ...] = ()  # positions of columns without a name and without a value so far
    width: int = 0  # fields of a record
    header: tuple[str, ...] = ()  # the fields of the header line
    dialect: Dialect | None = None
    skipped_lines: int = 0
    is_ragged: bool = False  # missing fields at the end of a line are empty


def ending(path: Path) -> str:
    """The file extension without .gz, in lower case: train.csv.gz -> .csv."""
    return Path(plain_file_name(path.name)).suffix.lower()


def detect_format(path: Path, encoding: str = "auto") -> str:
    """The format by content; the extension only decides between readings of the same text."""
    require_file(path)
    found, hinted = recognise_format(path, encoding), ENDINGS.get(ending(path), "")
    if found == "json" and hinted == "jsonl":
        with contextlib.suppress(ValueError):
            json.loads(next(read_text_lines(path, encoding), ""))
            return "jsonl"  # with a single line
    if found == "json":
        return "squad" if is_squad(path, encoding) else "json"
    if found in ("separated", "labelled", "text"):
        return hinted if hinted in ("csv", "tsv", "psv", "json", "jsonl") else "csv" if hinted else found
    return found


def find_layout(path: Path, options: FileOptions) -> FileLayout:
    """The layout of a file, detected once per file and options, until the file changes."""
    status = path.stat()
    return _find_layout(path, status.st_size, status.st_mtime_ns, options)


@lru_cache(maxsize=4096)
def _find_layout(path: Path, size: int, mtime_ns: int, options: FileOptions) -> FileLayout:
    name = detect_format(path, options.encoding) if options.format == "auto" else options.format
    if options.columns is not None and name not in ("csv", "tsv", "psv", "separated", "excel"):
        raise DataError(
            f"data.columns is given, and {path} is {name}",
            "data.columns names the columns of separated text and spreadsheets; other formats have their own names",
            "Remove data.columns",
        )
    if name in ("parquet", "arrow"):
        numbers = name == "parquet" and _has_pandas_index(path)
        note = f"{path.name}: the column {PANDAS_INDEX} only numbers the rows and is left out"
        return FileLayout(name, (note,) if numbers else ())
    if name == "excel":
        records = list(itertools.islice(read_sheet(path, options.sheet), SAMPLE_ROWS + 1))
        return _name_fields(path, records, len(records[0]) if records else 0, options, FileLayout("excel"), [])
    notes = list(filter(None, [find_encoding(path, options.encoding).describe(path.name)]))
    if name in ("csv", "tsv", "psv", "separated"):
        return _find_separated(path, name, options, notes)
    if name == "json":
        notes += [f"{path.name}: {note}" for note in [find_json_layout(path, options.encoding).describe()] if note]
    elif name == "labelled" and options.format == "auto":
        notes.append(f"{path.name}: the first word of each line is the label, the others are the text")
    elif name == "text" and options.format == "auto":
        notes.append(f"{path.name}: each line is a text; the column is called text")
    elif name not in ("jsonl", "squad", "labelled", "text"):
        raise DataError(
            f"data.format is '{name}'",
            f"A single file can be {', '.join(FORMATS[:-2])}; parallel text and classes are several files",
            "Set data.format to one of these, or data.path to the folder",
            hint=did_you_mean(name, FORMATS),
        )
    return FileLayout(name, tuple(notes))


def _find_separated(path: Path, name: str, options: FileOptions, notes: list[str]) -> FileLayout:
    text = read_beginning(path, options.encoding, _SAMPLE_CHARACTERS)
    is_whole = len(text) < _SAMPLE_CHARACTERS
    end = find_encoding(path, options.encoding).line_end
    lines = text.split(end)
    if not is_whole or not lines[-1]:
        lines.pop()
    lines = [line + end for line in lines]
    refuse_tokens(path, lines[:SAMPLE_LINES])
    stated = re.fullmatch(r'"?sep=(.)"?\s*', lines[0]) if lines else None  # Excel's own first line
    skipped = int(stated is not None)
    dialect: Dialect | None
    if stated is not None:
        dialect = find_dialect(lines[1:], stated[1], is_whole=is_whole, only=[stated[1]])
    elif name == "separated":
        dialect = find_dialect_by_content(lines, is_whole=is_whole)
    else:
        only = () if options.format == "auto" else (",", ";") if name == "csv" else (SEPARATORS[name],)
        dialect = find_dialect(lines, SEPARATORS[name], is_whole=is_whole, only=only)
    dialect = dialect or Dialect("\t", "")
    if dialect.text_at is not None:
        notes.append(f"{path.name}: {dialect.describe()}")
    sample = itertools.islice(read_separated_records(lines[skipped:], dialect), SAMPLE_LINES)
    numbered = [(number, fields) for number, fields in sample if isinstance(fields, list)]
    records = [fields for _, fields in numbered]
    widths = [len(record) for record in records]
    usual = max(set(widths), key=widths.count, default=0)
    if before := _count_preamble(records, usual):
        skipped += numbered[before][0] - 1
        shown = shorten_cell(records[0][0], 40)
        records = records[before:]
        notes.append(f"{path.name}: lines above the table ({shown!r}) are left out")
    if usual == 1:
        _refuse_quoted_lines(path, lines[skipped:SAMPLE_LINES], dialect.separator)
    layout = FileLayout("separated", dialect=dialect, skipped_lines=skipped)
    return _name_fields(path, records, usual, options, layout, notes)


def _refuse_quoted_lines(path: Path, lines: Sequence[str], separator: str) -> None:
    """An error if whole lines of a table are quoted: "text,label" instead of "text","label"."""
    bodies = [line.strip().removeprefix("\ufeff") for line in lines if line.strip()]
    quoted = [body for body in bodies if len(body) > 1 and body[0] == body[-1] == '"' and separator in body]
    if len(quoted) > 0.95 * len(bodies) > 1:
        raise DataError(
            f"{path}: each line is quoted as a whole: {shorten_cell(bodies[0], 60)}",
            f"Quotes enclose single fields; inside them '{separator}' separates nothing",
            f"""Remove them: sed -E 's/^"(.*)"(\\r?)$/\\1/; s/""/"/g' {path.name} > rows.csv""",
        )


def _count_preamble(records: Sequence[Sequence[str]], usual: int) -> int:
    """The number of lines above a table, such as a title or a licence; they have one field, all others several."""
    below = list(itertools.dropwhile(lambda record: len(record) == 1, records))
    is_table = usual >= _FEWEST_BELOW_TITLE and sum(len(record) == usual for record in below) >= 0.95 * len(below) > 1
    return len(records) - len(below) if is_table and len(below) >= 0.8 * len(records) else 0


def _name_fields(
    path: Path, records: list[list[str]], usual: int, options: FileOptions, layout: FileLayout, notes: list[str]
) -> FileLayout:
    if not records:
        return replace(layout, notes=tuple(notes))
    below = records[1 : SAMPLE_ROWS + 1]
    first = _with_row_names(records[0], below, usual)
    verdict = _classify_header(path, first, below, options)
    has_header = verdict.kind == "header"
    width = len(first) if has_header else usual
    is_ragged = not has_header and options.columns is None and _is_ragged(records, usual, layout)
    longer = sum(any(map(str.strip, record[width:])) for record in below)
    is_short = has_header and width > 1 and longer > 0.5 * len(below)  # text, word, answers of 50 people
    if is_short or (is_ragged and max(map(len, records)) > _MOST_RAGGED):
        _refuse_ragged(path, records, len(first) - 1 if is_short else min(map(len, records)) - 1)
    if is_ragged and max(map(len, records)) > _MOST_RAGGED:
        raise DataError(
            f"{path}: lines have {min(map(len, records))} to {max(map(len, records))} fields",
            "This is not a table: the words of a text are separated like columns",
            f"Replace all separators but the first by spaces: sed 's/\\t/ /2g' {path.name} > rows.tsv",
        )
    if is_ragged:
        width = max(map(len, records))
        notes.append(
            f"{path.name}: lines have {min(map(len, records))} to {width} fields; missing ones at the end are empty"
        )
    if options.columns is not None and len(options.columns) != width:
        raise DataError(
            f"data.columns has {len(options.columns)} names ({', '.join(options.columns)}), and {path} has "
            f"{width} columns: {_shown(first)}",
            "Every column needs a name",
            f"Give {width} names in data.columns",
        )
    filled = {at for record in records[1:] for at, field in enumerate(record) if field.strip()}
    given = options.columns or (first if has_header else options.known if len(options.known) == width else [""] * width)
    names = name_columns(given)
    if not has_header and verdict.reason:
        called = ", ".join(names if width < 4 else [names[0], "...", names[-1]])
        notes.append(
            f"{path.name}: the first line is read as a row, not as a header ({verdict.reason}); the columns are named "
            f"{called}; set data.header=true if it is a header"
        )
    has_names = not has_header or options.columns is not None
    empty = [at for at in range(width) if not (has_names or first[at].strip() or at in filled)]
    if empty:
        notes.append(
            f"{path.name}: {len(empty)} column{'s' if len(empty) > 1 else ''} without name and values left out"
        )
    kept = [at for at in range(width) if at not in empty]
    if has_header and options.columns is None and len(kept) > 1 and _has_index(first, below):
        kept.remove(0)
        notes.append(f"{path.name}: the first column ('{first[0]}') only numbers the rows and is left out")
    return replace(
        layout,
        notes=tuple(notes),
        names=tuple(names[at] for at in kept),
        kept=tuple(kept),
        empty=tuple(empty),
        width=width,
        header=tuple(records[0]) if has_header else (),
        is_ragged=is_ragged,
    )


def _refuse_ragged(path: Path, records: Sequence[Sequence[str]], shared: int) -> None:
    """An error if a text and a list of values are separated alike: text, word, answer, answer, answer, ..."""
    texts = sum(len(record[0].split()) > 2 for record in records)
    if shared < 1 or texts < 0.5 * len(records):
        return
    raise DataError(
        f"{path}: lines have {min(map(len, records))} to {max(map(len, records))} fields; the last ones are a list",
        "Each line of a table has the same columns",
        f"Keep the first {shared + 1} fields of each line, or write JSON lines with a list, in Python: "
        f"fields = line.rstrip().split('\\t'); json.dumps({{'text': fields[0], 'values': fields[{shared}:]}})",
    )


def _with_row_names(first: list[str], below: list[list[str]], usual: int) -> list[str]:
    """R does not name the column that numbers the rows, so the header is one field short."""
    numbers = [record[0] for record in below]
    is_short = len(first) == usual - 1 and all(len(record) == usual for record in below)
    return ["", *first] if is_short and len(numbers) > 1 and is_index(numbers) else first


def _is_ragged(records: Sequence[Sequence[str]], usual: int, layout: FileLayout) -> bool:
    if layout.dialect is None or layout.dialect.separator != "\t":
        return False
    others = sum(len(record) != usual for record in records)
    return others > _RAGGED_SHARE * len(records) and min(map(len, records)) > 1


def _classify_header(path: Path, first: list[str], below: list[list[str]], options: FileOptions) -> Verdict:
    """By the options, else by the rows; an unsure verdict is an error. A verdict with a reason becomes a note."""
    if options.header is not None:
        return Verdict("header" if options.header else "row", "")
    if tuple(field.strip() for field in first) in (options.columns, options.known):
        return Verdict("header", "")
    verdict = classify_first_row(first, below)
    if verdict.kind != "header" and (options.columns is not None or len(options.known) == len(first)):
        return Verdict("row", "")
    if verdict.kind == "row" or (verdict.kind == "header" and options.columns is None):
        return verdict
    names = list(options.columns or name_columns(first))
    without = list(options.columns or name_columns([""] * len(first)))
    row = below[0] if below else []
    looks = "looks like a header" if verdict.kind == "header" else "may be a header or a row"
    raise HeaderUnsure(
        f"{path}: the first line {looks}: {_shown(first)} ({verdict.reason})",
        f"With a header the first row is {_assigned(names, row)}; without one it is {_assigned(without, first)}",
        "Set data.header=true (the first line names the columns) or data.header=false (it is a row)",
        first=[field.strip() for field in first],
    )


def _shown(fields: Sequence[str], most: int = 6) -> str:
    return ", ".join([*(repr(shorten_cell(field, 40)) for field in fields[:most]), *["…"][: len(fields) > most]])


def _assigned(names: Sequence[str], fields: Sequence[str], most: int = 4) -> str:
    pairs = [f"{name}={shorten_cell(field, 40)!r}" for name, field in zip(names, fields, strict=False)]
    return ", ".join([*pairs[:most], *["…"][: len(pairs) > most]]) or "missing"


def _has_index(first: list[str], below: list[list[str]]) -> bool:
    """Whether the first column is the index that pandas writes to number the rows."""
    is_nameless = not first[0].strip() or first[0].startswith("Unnamed: 0")
    return is_nameless and is_index([record[0].strip() for record in below if record])


def _has_pandas_index(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return PANDAS_INDEX in pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError):
        return False  # reading the rows reports it
