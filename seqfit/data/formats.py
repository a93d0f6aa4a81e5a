"""Readers: a file in any known format -> rows, lazily.

In: a path and the recipe's options for it. Out: rows, dictionaries from column to value, one at a time; a file of a
million rows takes no more memory than one of ten. The one idea: `read_rows` is the only entry point, it follows the
file's `FileLayout`, and a row that can't be read is a `BadRow` with its line.

    answers.psv   id|answer        -> {"id": "7", "answer": "because"}
                  7|because
    news.csv      3,Fears          -> {"column1": "3", "column2": "Fears"}   (no header; data.columns gives other names)
    train.en, train.de             -> {"en": "Two dogs.", "de": "Zwei Hunde."}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.data.content import SAMPLE_LINES
from seqfit.data.excel import read_sheet
from seqfit.data.json_stream import as_row, name_arrays, read_json_rows, read_squad
from seqfit.data.layout import ENDINGS, PANDAS_INDEX, FileLayout, FileOptions, ending, find_layout
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.separated import Dialect, Fault, read_separated_records
from seqfit.data.text_files import BROKEN, decode_lines, find_encoding, read_text_lines
from seqfit.errors import DataError, HeaderUnsure
from seqfit.paths import require_file


def read_rows(path: Path, options: FileOptions | None = None, keys: Sequence[str] = ()) -> Iterator[DataRow]:
    """The rows of one file; `keys` names the lists to read in a JSON file that has several."""
    require_file(path)
    options = options or FileOptions()
    layout = find_layout(path, options)
    lines = read_text_lines(path, options.encoding, keep_broken=True)
    readers: dict[str, Callable[[], Iterator[DataRow]]] = {
        "json": lambda: read_json_rows(path, options.encoding, keys),
        "jsonl": lambda: _read_jsonl(lines),
        "squad": lambda: read_squad(path, options.encoding),
        "parquet": lambda: _read_arrow(path, "parquet"),
        "arrow": lambda: _read_arrow(path, "arrow"),
        "excel": lambda: _read_excel(path, options, layout),
        "labelled": lambda: _read_labelled(lines),
        "text": lambda: ({"text": line.rstrip("\r\n")} for line in lines if line.strip()),
        "separated": lambda: _read_separated(lines, layout),
    }
    rows = readers[layout.format]()
    if layout.format not in ("parquet", "arrow", "excel") and find_encoding(path, options.encoding).has_broken:
        rows = mark_broken(rows, find_encoding(path, options.encoding).name)
    return not_empty(rows, str(path))


def read_file(
    given: Path | Iterable[bytes], named: Collection[str] = (), *, skip_bad: bool = False
) -> Iterator[DataRow | str]:
    """The rows of a data file; the lines of a text file, or of standard input, with their ends.

    A row that can't be read is an error, or left out. `named` columns decide whether there is a header.
    """
    if not isinstance(given, Path):
        yield from decode_lines(given, "standard input")
        return
    if ending(given) not in ENDINGS:
        yield from read_text_lines(given)
        return
    try:
        options = FileOptions()
        find_layout(given, options)
    except HeaderUnsure as error:
        options = FileOptions(header=knows_header(error, named))
    for row in read_rows(given, options):
        if not isinstance(row, BadRow):
            yield row
        elif not skip_bad:
            raise DataError(
                f"{given}, {row.detail}: {row.cause}", "Every row must be readable", "Correct or remove the row"
            )


def knows_header(error: HeaderUnsure, named: Collection[str]) -> bool:
    """Whether the unsure line is a header, decided by the columns that a task names; raises the error if they don't."""
    tops = {name if name in error.first else name.split(".")[0] for name in named}
    if tops and tops <= set(error.first):
        return True
    if tops and tops <= {f"column{number}" for number in range(1, len(error.first) + 1)}:
        return False
    raise error


def not_empty(rows: Iterator[DataRow], name: str) -> Iterator[DataRow]:
    first = next(rows, None)
    if first is None:
        raise DataError(
            f"{name} has no rows", "A data set needs at least one row", "Set data.path to a file that has rows"
        )
    yield first
    yield from rows


def mark_broken(rows: Iterator[DataRow], encoding: str) -> Iterator[DataRow]:
    """The rows, those whose bytes did not decode as `BadRow`s."""
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


def _read_jsonl(lines: Iterator[str]) -> Iterator[DataRow]:
    first: Any = None
    names: list[str] | None = None
    for number, line in enumerate(lines, 1):
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


def _read_separated(lines: Iterator[str], layout: FileLayout) -> Iterator[DataRow]:
    assert layout.dialect is not None or not layout.names
    for _ in range(layout.skipped_lines):
        next(lines)
    dialect = layout.dialect or Dialect(",")
    records = read_separated_records(lines, dialect, None if layout.is_ragged else layout.width)
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


def _named(fields: Sequence[str], layout: FileLayout, where: str) -> DataRow:
    if len(fields) > 1 and tuple(fields) == layout.header:
        return BadRow("a repeated header", where)
    if any(fields[at].strip() for at in layout.empty):
        return BadRow("a value in a column without a name", where)
    if len(layout.kept) == layout.width:
        return dict(zip(layout.names, fields, strict=True))
    return {name: fields[at] for name, at in zip(layout.names, layout.kept, strict=True)}


def _read_excel(path: Path, options: FileOptions, layout: FileLayout) -> Iterator[DataRow]:
    records = read_sheet(path, options.sheet)
    if layout.header:
        next(records, None)
    for number, fields in enumerate(records, 1):
        yield _named(fields, layout, f"row {number}")


def _read_labelled(lines: Iterator[str]) -> Iterator[DataRow]:
    """'LABEL text', and fastText's '__label__a __label__b text'."""
    beginning = list(itertools.islice(lines, SAMPLE_LINES))
    is_multiple = any(line.split(maxsplit=2)[1:2] and line.split()[1].startswith("__label__") for line in beginning)
    for number, line in enumerate(itertools.chain(beginning, lines), 1):
        words = line.rstrip("\r\n").split(maxsplit=1)
        if not words or (number == 1 and words[0].lower() in ("label", "class", "category")):
            continue  # a blank line or the header
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


def _read_arrow(path: Path, name: str) -> Iterator[DataRow]:
    """Parquet and Arrow files, without the column of pandas' index."""
    import pyarrow as pa

    try:
        yield from (
            {column: value for column, value in row.items() if column != PANDAS_INDEX}
            for batch in _arrow_batches(path, name)
            for row in batch.to_pylist()
        )
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        kind = "a Parquet" if name == "parquet" else "an Arrow"
        raise DataError(
            f"{path} can't be opened: {error}",
            f"It must be {kind} file",
            "Download or write it again, or set data.format to what it is",
        ) from error


def _arrow_batches(path: Path, name: str) -> Iterator[Any]:
    import pyarrow as pa

    if name == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=1000)
        return
    with pa.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
        else:
            source.seek(0)
            yield from pa.ipc.open_stream(source)


def read_parallel_files(files: Mapping[str, Path], encoding: str = "auto") -> Iterator[DataRow]:
    """Line n of each file is one row: {"en": train.en.gz, "de": train.de.gz}."""
    for path in files.values():
        require_file(path)
    rows = _parallel_lines(files, encoding)
    broken = [found.name for path in files.values() if (found := find_encoding(path, encoding)).has_broken]
    return not_empty(mark_broken(rows, broken[0]) if broken else rows, " and ".join(map(str, files.values())))


def _parallel_lines(files: Mapping[str, Path], encoding: str) -> Iterator[DataRow]:
    lines = [read_text_lines(path, encoding, keep_broken=True) for path in files.values()]
    for number, texts in enumerate(itertools.zip_longest(*lines), 1):
        if None in texts:
            names = " and ".join(str(path) for path in files.values())
            short = [path.name for path, text in zip(files.values(), texts, strict=True) if text is None]
            raise DataError(
                f"{names}: {', '.join(short)} ends before line {number}",
                "Parallel files have equally many lines: line n of each is one row",
                "Download the files again, or check that data.files or data.languages names the right ones",
            )
        yield {column: str(text).rstrip("\r\n") for column, text in zip(files, texts, strict=True)}
