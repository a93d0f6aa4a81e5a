"""Readers: a file in any known format -> rows, lazily.

In: a path and what the recipe states about it (`FileOptions`). Out: rows, dictionaries from column to value, one at a
time; a file of a million rows takes no more memory than one of ten. The one idea: everything that has to be found out
about a file (format, encoding, separator, header) is found once, from its beginning, in `find_layout`; whoever reads
the file, to guess, to split or to train, reads it by that layout. A row that can't be read is a `BadRow`.

    answers.psv   id|answer        -> {"id": "7", "answer": "because"}
                  7|because
    news.csv      3,Fears          -> {"column1": "3", "column2": "Fears"}   (no header; data.columns gives other names)
    train.en, train.de             -> {"en": "Two dogs.", "de": "Zwei Hunde."}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from seqfit.data.archives import plain_name
from seqfit.data.content import SAMPLE_LINES, recognise_format, refuse_tokens
from seqfit.data.encoding import BROKEN, find_encoding
from seqfit.data.excel import read_sheet
from seqfit.data.headers import SAMPLE_ROWS, Verdict, is_index, judge_first_row, name_columns
from seqfit.data.json_stream import as_row, find_json_layout, is_squad, name_arrays, read_json, read_squad
from seqfit.data.rows import BadRow, Row
from seqfit.data.separated import (
    SEPARATORS,
    Dialect,
    Fault,
    find_dialect,
    find_dialect_by_content,
    read_records,
    strip_separator_line,
)
from seqfit.data.text_files import read_beginning, read_lines, require_file
from seqfit.errors import DataError, HeaderUnsure, complain, did_you_mean

FORMATS = ("json", "jsonl", "csv", "tsv", "psv", "parquet", "excel", "squad", "labelled", "classes", "parallel")
ENDINGS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".psv": "psv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "excel",
    ".ods": "excel",
}
_SAMPLE_CHARACTERS = 1 << 23
_BATCH_ROWS = 1000
_RAGGED_SHARE = 0.2  # where more lines than that have another number of fields, they are meant to
_PANDAS_INDEX = "__index_level_0__"


@dataclass(frozen=True)
class FileOptions:
    """What the recipe states about its files; None and 'auto' are found out."""

    format: str = "auto"
    encoding: str = "auto"
    header: bool | None = None
    columns: tuple[str, ...] | None = None
    sheet: str | None = None
    known: tuple[str, ...] = ()  # the columns of another file of the same set


@dataclass(frozen=True)
class Layout:
    """How a file is laid out."""

    format: str
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the columns that are kept, where they do not stand in each row
    kept: tuple[int, ...] = ()  # their positions
    width: int = 0  # fields of a record
    header: tuple[str, ...] = ()  # the fields of the line that names the columns
    dialect: Dialect | None = None
    skipped_lines: int = 0
    is_ragged: bool = False  # missing fields at the end of a line are empty


def ending(path: Path) -> str:
    """The file's ending without .gz, in small letters: train.csv.gz -> .csv."""
    return Path(plain_name(path.name)).suffix.lower()


def detect_format(path: Path, encoding: str = "auto") -> str:
    """The format by content; the ending decides only between readings of the same text."""
    require_file(path)
    found, hinted = recognise_format(path, encoding), ENDINGS.get(ending(path), "")
    if found == "json" and hinted == "jsonl" and _is_json(next(read_lines(path, encoding), "")):
        return "jsonl"  # of one line
    if found == "json":
        return "squad" if is_squad(path, encoding) else "json"
    if found in ("separated", "labelled", "text"):
        return hinted if hinted in ("csv", "tsv", "psv", "json", "jsonl") else "csv" if hinted else found
    return found


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def read_rows(path: Path, options: FileOptions | None = None, keys: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of one file; `keys` names the lists to read in a JSON file that has several."""
    require_file(path)
    options = options or FileOptions()
    layout = find_layout(path, options)
    rows = _readers(path, options, layout, keys)[layout.format]()
    if layout.format not in ("parquet", "arrow", "excel") and find_encoding(path, options.encoding).has_broken:
        rows = mark_broken(rows, find_encoding(path, options.encoding).name)
    return not_empty(rows, str(path))


def _readers(
    path: Path, options: FileOptions, layout: Layout, keys: Sequence[str]
) -> dict[str, Callable[[], Iterator[Row]]]:
    return {
        "json": lambda: read_json(path, options.encoding, keys),
        "jsonl": lambda: _read_jsonl(path, options.encoding),
        "squad": lambda: read_squad(path, options.encoding),
        "parquet": lambda: _read_arrow(path, "parquet"),
        "arrow": lambda: _read_arrow(path, "arrow"),
        "excel": lambda: _read_excel(path, options, layout),
        "labelled": lambda: _read_labelled(path, options.encoding),
        "text": lambda: _read_text(path, options.encoding),
        "separated": lambda: _read_separated(path, options, layout),
    }


def read_whole_rows(path: Path, named: Collection[str] = ()) -> Iterator[Row]:
    """The rows of one file, where one that can't be read is an error; `named` columns decide about a header."""
    try:
        options = FileOptions()
        find_layout(path, options)
    except HeaderUnsure as error:
        options = FileOptions(header=knows_header(error, named))
    for row in read_rows(path, options):
        if isinstance(row, BadRow):
            raise DataError(
                complain(f"{path}, {row.detail}: {row.cause}", "Every row must be readable", "Correct or remove it")
            )
        yield row


def knows_header(error: HeaderUnsure, named: Collection[str]) -> bool:
    """Whether the columns that somebody names stand in the open line; where they do not decide, the error is raised."""
    tops = {name if name in error.first else name.split(".")[0] for name in named}
    if tops and tops <= set(error.first):
        return True
    if tops and tops <= {f"column{number}" for number in range(1, len(error.first) + 1)}:
        return False
    raise error


def not_empty(rows: Iterator[Row], name: str) -> Iterator[Row]:
    """The rows, of which there must be one."""
    first = next(rows, None)
    if first is None:
        raise DataError(complain(f"{name} has no rows", "A data set needs at least one", "Set data.path to another"))
    yield first
    yield from rows


# ---- the layout ----


def find_layout(path: Path, options: FileOptions) -> Layout:
    """What a reader has to know about the file; found once per file and options, until the file changes."""
    status = path.stat()
    return _find_layout(path, status.st_size, status.st_mtime_ns, options)


@lru_cache(maxsize=4096)
def _find_layout(path: Path, size: int, mtime_ns: int, options: FileOptions) -> Layout:
    name = detect_format(path, options.encoding) if options.format == "auto" else options.format
    if name in ("parquet", "arrow"):
        return Layout(name, _index_note(path, name))
    if name == "excel":
        return _find_excel(path, options)
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
            complain(
                f"data.format is '{name}'",
                f"One file can be {', '.join(FORMATS[:-2])}; parallel text and classes are several files",
                "Set data.format to one of them, or data.path to the folder",
            )
            + did_you_mean(name, FORMATS)
        )
    return Layout(name, tuple(notes))


def _find_excel(path: Path, options: FileOptions) -> Layout:
    records = list(itertools.islice(read_sheet(path, options.sheet), SAMPLE_ROWS + 1))
    return _name_fields(path, records, len(records[0]) if records else 0, options, Layout("excel"), [])


def _find_separated(path: Path, name: str, options: FileOptions, notes: list[str]) -> Layout:
    text = read_beginning(path, options.encoding, _SAMPLE_CHARACTERS)
    is_whole = len(text) < _SAMPLE_CHARACTERS
    end = find_encoding(path, options.encoding).line_end
    lines = text.split(end)
    if not is_whole or not lines[-1]:
        lines.pop()
    lines = [line + end for line in lines]
    refuse_tokens(path, lines[:SAMPLE_LINES])
    stated = strip_separator_line(lines)
    skipped = int(stated is not None)
    dialect: Dialect | None
    if stated is not None:
        dialect = find_dialect(lines[1:], stated, is_whole=is_whole, only=[stated])
    elif name == "separated":
        dialect = find_dialect_by_content(lines, is_whole=is_whole)
    else:
        only = () if options.format == "auto" else (",", ";") if name == "csv" else (SEPARATORS[name],)
        dialect = find_dialect(lines, SEPARATORS[name], is_whole=is_whole, only=only)
    dialect = dialect or Dialect("\t", "")
    sample = itertools.islice(read_records(lines[skipped:], dialect), SAMPLE_LINES)
    records = [fields for _, fields in sample if isinstance(fields, list)]
    layout = Layout("separated", dialect=dialect, skipped_lines=skipped)
    return _name_fields(path, records, _usual_width(records), options, layout, notes)


def _usual_width(records: Sequence[Sequence[str]]) -> int:
    widths = [len(record) for record in records]
    return max(set(widths), key=widths.count, default=0)


# ---- columns ----


def _name_fields(
    path: Path, records: list[list[str]], usual: int, options: FileOptions, layout: Layout, notes: list[str]
) -> Layout:
    """The layout with the names of the columns, by what is stated, else by the first record."""
    if not records:
        return Layout(layout.format, tuple(notes), dialect=layout.dialect)
    below = records[1 : SAMPLE_ROWS + 1]
    first = _with_row_names(records[0], below, usual)
    verdict = _judge_header(path, first, below, options)
    has_header = verdict.kind == "header"
    width = len(first) if has_header else usual
    is_ragged = not has_header and options.columns is None and _is_ragged(records, layout)
    if is_ragged:
        width = max(map(len, records))
        notes.append(
            f"{path.name}: lines have {min(map(len, records))} to {width} fields; missing ones at the end are empty"
        )
    if options.columns is not None and len(options.columns) != width:
        raise DataError(
            complain(
                f"data.columns has {len(options.columns)} names ({', '.join(options.columns)}), and {path} has "
                f"{width} columns: {_shown(first)}",
                "Every column has a name",
                "Give as many names as there are columns",
            )
        )
    filled = {at for record in records[1:] for at, field in enumerate(record) if field.strip()}
    given = options.columns or (first if has_header else options.known if len(options.known) == width else [""] * width)
    names = name_columns(given)
    if not has_header and verdict.reason:
        called = ", ".join(names if width < 4 else [names[0], "...", names[-1]])
        notes.append(
            f"{path.name}: the first line is a row ({verdict.reason}); the columns are called {called}; "
            "data.header=true decides otherwise"
        )
    kept = [at for at in range(width) if not has_header or first[at].strip() or at in filled or options.columns]
    if len(kept) < width:
        notes.append(f"{path.name}: {width - len(kept)} columns without a name and without values are left out")
    dropped = _index_column(first, below, names) if has_header and options.columns is None else None
    if dropped is not None and len(kept) > 1:
        kept.remove(dropped)
        notes.append(f"{path.name}: the first column only numbers the rows ('{first[dropped]}') and is left out")
    return Layout(
        layout.format,
        tuple(notes),
        tuple(names[at] for at in kept),
        tuple(kept),
        width,
        tuple(records[0]) if has_header else (),
        layout.dialect,
        layout.skipped_lines,
        is_ragged,
    )


def _with_row_names(first: list[str], below: list[list[str]], usual: int) -> list[str]:
    """R writes no name for the column that numbers the rows: the header is then one field short."""
    numbers = [record[0] for record in below]
    is_short = len(first) == usual - 1 and all(len(record) == usual for record in below)
    return ["", *first] if is_short and len(numbers) > 1 and is_index(numbers) else first


def _is_ragged(records: Sequence[Sequence[str]], layout: Layout) -> bool:
    if layout.dialect is None or layout.dialect.separator != "\t":
        return False
    usual = _usual_width(records)
    others = sum(len(record) != usual for record in records)
    return others > _RAGGED_SHARE * len(records) and min(map(len, records)) > 1


def _judge_header(path: Path, first: list[str], below: list[list[str]], options: FileOptions) -> Verdict:
    """What is stated or known, else what the rows say; an open question is an error. A reason is worth a note."""
    if options.header is not None:
        return Verdict("header" if options.header else "row", "")
    if tuple(field.strip() for field in first) in (options.columns, options.known):
        return Verdict("header", "")
    verdict = judge_first_row(first, below)
    if options.columns is not None:
        if verdict.kind == "header":
            raise _two_readings(path, first, below, verdict, options.columns)
        return Verdict("row", "")
    if len(options.known) == len(first) and verdict.kind != "header":
        return Verdict("row", "")
    if verdict.kind == "unsure":
        raise _two_readings(path, first, below, verdict, None)
    return verdict


def _two_readings(
    path: Path, first: list[str], below: list[list[str]], verdict: Verdict, columns: Sequence[str] | None
) -> HeaderUnsure:
    names = list(columns or name_columns(first))
    without = list(columns or name_columns([""] * len(first)))
    row = below[0] if below else []
    looks = "looks like the names of the columns" if verdict.kind == "header" else "may name the columns or be a row"
    return HeaderUnsure(
        complain(
            f"{path}: the first line {looks}: {_shown(first)} ({verdict.reason})",
            f"With a header the first row is {_assigned(names, row)}; without one it is {_assigned(without, first)}",
            "Set data.header=true (the first line names the columns and is no row) or data.header=false (it is a row)",
        ),
        [field.strip() for field in first],
    )


def _shown(fields: Sequence[str], most: int = 6) -> str:
    return ", ".join([*(repr(_cut(field)) for field in fields[:most]), *["…"][: len(fields) > most]])


def _assigned(names: Sequence[str], fields: Sequence[str], most: int = 4) -> str:
    pairs = [f"{name}={_cut(field)!r}" for name, field in zip(names, fields, strict=False)]
    return ", ".join([*pairs[:most], *["…"][: len(pairs) > most]]) or "missing"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _index_column(first: list[str], below: list[list[str]], names: Sequence[str]) -> int | None:
    """A first column that pandas has written to number the rows."""
    is_nameless = not first[0].strip() or first[0].startswith("Unnamed: 0")
    return 0 if is_nameless and is_index([record[0].strip() for record in below if record]) else None


# ---- readers ----


def mark_broken(rows: Iterator[Row], encoding: str) -> Iterator[Row]:
    """Rows whose bytes did not decode are left out by whoever renders rows."""
    shown = encoding.upper() if encoding.startswith("utf") else encoding
    for number, row in enumerate(rows, 1):
        if not isinstance(row, BadRow) and _has_broken(row):
            text = BROKEN.sub("\ufffd", str(next(value for value in row.values() if _has_broken(value))))
            yield BadRow(f"not {shown}", f"row {number}: {text[:80]!r}")
        else:
            yield row


def _has_broken(value: Any) -> bool:
    if isinstance(value, str):
        return not value.isascii() and BROKEN.search(value) is not None
    if isinstance(value, Mapping):
        return any(map(_has_broken, value.values())) or any(map(_has_broken, value))
    return isinstance(value, list) and any(map(_has_broken, value))


def _read_jsonl(path: Path, encoding: str) -> Iterator[Row]:
    first: Any = None
    names: list[str] | None = None
    for number, line in enumerate(read_lines(path, encoding, keep_broken=True), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            place = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            yield BadRow("not JSON", f"line {number}{place}: {line.strip()[:80]!r}")
            continue
        if first is None:
            first = value
            names = name_arrays([value])[0] if isinstance(value, list) else None
        yield as_row(value, first, names, f"line {number}")


def _read_separated(path: Path, options: FileOptions, layout: Layout) -> Iterator[Row]:
    lines = read_lines(path, options.encoding, keep_broken=True)
    assert layout.dialect is not None or not layout.names
    for _ in range(layout.skipped_lines):
        next(lines)
    dialect = layout.dialect or Dialect(",")
    records = read_records(lines, dialect, None if layout.is_ragged else layout.width)
    if layout.header:
        next(records, None)
    for number, fields in records:
        line = f"line {number + layout.skipped_lines}"
        if isinstance(fields, Fault):
            yield BadRow(fields.cause, f"{line} ({', '.join(layout.names[:6])})")
            continue
        if layout.is_ragged:
            if len(fields) > layout.width:
                yield BadRow(f"{len(fields)} fields instead of at most {layout.width}", line)
                continue
            fields = [*fields, *[""] * (layout.width - len(fields))]
        yield _named(fields, layout, line)


def _named(fields: Sequence[str], layout: Layout, where: str) -> Row:
    if len(fields) > 1 and tuple(fields) == layout.header:
        return BadRow("the header again", where)
    if len(layout.kept) == layout.width:
        return dict(zip(layout.names, fields, strict=True))
    return {name: fields[at] for name, at in zip(layout.names, layout.kept, strict=True)}


def _read_excel(path: Path, options: FileOptions, layout: Layout) -> Iterator[Row]:
    records = read_sheet(path, options.sheet)
    if layout.header:
        next(records, None)
    for number, fields in enumerate(records, 1):
        yield _named(fields, layout, f"row {number}")


def _read_labelled(path: Path, encoding: str) -> Iterator[Row]:
    """'LABEL text', and fastText's '__label__a __label__b text'."""
    lines = read_lines(path, encoding, keep_broken=True)
    beginning = list(itertools.islice(lines, SAMPLE_LINES))
    is_multiple = any(line.split(maxsplit=2)[1:2] and line.split()[1].startswith("__label__") for line in beginning)
    for number, line in enumerate(itertools.chain(beginning, lines), 1):
        words = line.rstrip("\r\n").split(maxsplit=1)
        if number == 1 and words and words[0].lower() in ("label", "class", "category"):
            continue  # it names the columns
        if not words:
            continue
        labels: list[str] = []
        text = line.strip()
        while text.startswith("__label__"):
            label, _, text = text.partition(" ")
            labels.append(label.removeprefix("__label__"))
            text = text.strip()
        if labels:
            yield {"label": labels if is_multiple or len(labels) > 1 else labels[0], "text": text}
        elif len(words) < 2:
            yield BadRow("a label without a text", f"line {number}: {line.strip()[:80]!r}")
        else:
            yield {"label": words[0], "text": words[1]}


def _read_text(path: Path, encoding: str) -> Iterator[Row]:
    for line in read_lines(path, encoding, keep_broken=True):
        if line.strip():
            yield {"text": line.rstrip("\r\n")}


def _read_arrow(path: Path, name: str) -> Iterator[Row]:
    """Parquet and Arrow files, without the column in which pandas keeps its index."""
    import pyarrow as pa

    try:
        yield from (
            {column: value for column, value in row.items() if column != _PANDAS_INDEX}
            for batch in _arrow_batches(path, name)
            for row in batch.to_pylist()
        )
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        kind = "a Parquet" if name == "parquet" else "an Arrow"
        raise DataError(
            complain(f"{path} does not open: {error}", f"It must be {kind} file", "Fetch it again or set data.format")
        ) from error


def _arrow_batches(path: Path, name: str) -> Iterator[Any]:
    import pyarrow as pa

    if name == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS)
        return
    with pa.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
        else:
            source.seek(0)
            yield from pa.ipc.open_stream(source)


def _index_note(path: Path, name: str) -> tuple[str, ...]:
    if name != "parquet":
        return ()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError):
        return ()  # reading says what is wrong
    if _PANDAS_INDEX not in names:
        return ()
    return (f"{path.name}: the column {_PANDAS_INDEX} only numbers the rows and is left out",)


def read_parallel(files: Mapping[str, Path], encoding: str = "auto") -> Iterator[Row]:
    """Line n of each file is one row: {"en": train.en.gz, "de": train.de.gz}."""
    for path in files.values():
        require_file(path)
    rows = _parallel_lines(files, encoding)
    broken = [found.name for path in files.values() if (found := find_encoding(path, encoding)).has_broken]
    return not_empty(mark_broken(rows, broken[0]) if broken else rows, " and ".join(map(str, files.values())))


def _parallel_lines(files: Mapping[str, Path], encoding: str) -> Iterator[Row]:
    lines = [read_lines(path, encoding, keep_broken=True) for path in files.values()]
    for number, texts in enumerate(itertools.zip_longest(*lines), 1):
        if None in texts:
            names = " and ".join(str(path) for path in files.values())
            short = [path.name for path, text in zip(files.values(), texts, strict=True) if text is None]
            raise DataError(
                complain(
                    f"{names}: {', '.join(short)} ends before line {number}",
                    "Parallel files have equally many lines, line n belonging to line n",
                    "Fetch the files again, or check that data.files or data.languages names the right ones",
                )
            )
        yield {column: str(text).rstrip("\r\n") for column, text in zip(files, texts, strict=True)}
