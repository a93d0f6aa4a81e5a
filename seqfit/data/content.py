"""What a file is, by its content: a format that is read, or an error that says what it is instead.

In: a path. Out: one of the formats of `seqfit.data.sources`, or a DataError that names what was found and what would
work. The one idea: the ending is a hint, and the first bytes decide; so a CSV file called .xlsx is read, and a web
page that was saved as .csv is not.

    train.txt   {"text": "a"}            jsonl
    vocab.data  abandon<tab>-2           separated
    TREC.all    NUM:date When was it ?   labelled
    a.conll     EU<tab>B-ORG             refused: one token per line
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from seqfit.data.archives import is_archive, read_head, zip_names
from seqfit.data.separated import find_dialect_by_content
from seqfit.data.text_files import read_beginning
from seqfit.errors import DataError, complain

SAMPLE_LINES = 1000
_SAMPLE_CHARACTERS = 1 << 20
_BINARY = (
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "an image (PNG)"),
    (b"\xff\xd8\xff", "an image (JPEG)"),
    (b"GIF8", "an image (GIF)"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"RIFF", "a sound or video file"),
    (b"ID3", "a sound file"),
    (b"OggS", "a sound file"),
    (b"Rar!", "a RAR archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x7fELF", "a program"),
)
_OTHERS = {
    ".py": "a Python script",
    ".ipynb": "a notebook",
    ".sh": "a shell script",
    ".r": "an R script",
    ".yaml": "YAML",
    ".yml": "YAML",
    ".arff": "an ARFF file of Weka",
    ".sql": "an SQL dump",
    ".srt": "a file of subtitles",
}
_TABLES = "CSV, TSV, JSON, JSON lines, Parquet or Excel"
_LABEL = re.compile(r"-?\d{1,3}|[A-Z][A-Z_]*(:\w+)?|\w+:\w+|__label__\S+")
_TAG = re.compile(r"[BIESLU]-\S+")


def recognise_format(path: Path, encoding: str = "auto") -> str:
    """The format of a file by its content alone."""
    found = _recognise_binary(path)
    if found is not None:
        return found
    text = read_beginning(path, encoding, _SAMPLE_CHARACTERS)
    every = text.split("\r" if "\r" in text and "\n" not in text else "\n")
    lines = every[:SAMPLE_LINES]
    _refuse_markup(path, text)
    if path.suffix.lower() in _OTHERS:
        raise refuse(path, _OTHERS[path.suffix.lower()], f"Write its rows to a table: {_TABLES}")
    start = text.lstrip("\ufeff \t\r\n")[:1]
    if start in ("{", "[") and (found := _recognise_json(text.lstrip("\ufeff \t\r\n"))):
        return found
    refuse_tokens(path, lines)
    if find_dialect_by_content(lines, is_whole=len(text) < _SAMPLE_CHARACTERS) is not None:
        return "separated"
    if has_labels(every[: -1 if len(text) >= _SAMPLE_CHARACTERS else None]):
        return "labelled"
    _refuse_blocks(path, lines)
    return "text"


def _recognise_binary(path: Path) -> str | None:
    head = read_head(path, 4096)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        if path.suffix.lower() in (".doc", ".ppt", ".msg"):
            raise refuse(path, "an Office document", "Copy its table to a spreadsheet, and save that as .xlsx or .csv")
        return "excel"
    if head.startswith(b"PK\x03\x04") and not is_archive(path):
        names = zip_names(path)
        if any(name.startswith("xl/") for name in names) or b"opendocument.spreadsheet" in head[:200]:
            return "excel"
        raise refuse(path, "an Office document", "Copy its table to a spreadsheet, and save that as .xlsx or .csv")
    for magic, what in _BINARY:
        if head.startswith(magic):
            raise refuse(path, what, f"Write its rows to a table: {_TABLES}")
    if head.startswith(b"version https://git-lfs"):
        raise refuse(path, "a Git LFS pointer instead of the file", "Fetch the file itself with: git lfs pull")
    controls = sum(byte < 9 or (13 < byte < 32 and byte != 27) for byte in head)
    is_wide = head.count(0) > 0.2 * len(head) or head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if controls > 0.05 * len(head) and not is_wide:
        raise refuse(path, "a binary file of an unknown kind", f"Write its rows to a table: {_TABLES}")
    return None


def _refuse_markup(path: Path, text: str) -> None:
    head = text[:2000].lstrip("\ufeff \t\r\n").lower()
    if head.startswith(("<!doctype html", "<html")):
        raise refuse(path, "a web page", "Fetch the file itself: on GitHub its 'Raw' link")
    is_xml = head.startswith("<?xml") or (
        path.suffix.lower() in (".xml", ".sgm", ".sgml", ".tei", ".tmx", ".xliff") and head.startswith("<")
    )
    if is_xml or re.match(r"<[a-z][\w-]*( [^>]*)?>\s*<[a-z]", head):
        raise refuse(path, "XML", f"Write one row per item to a table: {_TABLES} (for example with pandas.read_xml)")


def _recognise_json(text: str) -> str | None:
    """JSON lines where the first line is a whole value and another follows."""
    first, _, rest = text.partition("\n")
    rest = rest.lstrip("\ufeff \t\r\n")
    try:
        whole = isinstance(json.loads(first), dict | list)
    except ValueError:
        whole = False
    if whole:
        return "jsonl" if rest.startswith(("{", "[", '"')) else "json"
    try:
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        # What the end of the sample cuts off fails late; '[CLS] text' and '{name} is' fail at once.
        is_json = error.pos > min(100, len(text) / 2) and re.match(r'\{\s*"|\[\s*[\[{"\d-]', text)
        return "json" if is_json else None
    return "json"


def refuse_tokens(path: Path, lines: Sequence[str]) -> None:
    """An error where each line is a word with its tags, and blank lines end sentences (CoNLL)."""
    filled = [line.split() for line in lines if line.strip() and not line.startswith(("#", "-DOCSTART-"))]
    blanks = sum(not line.strip() for line in lines[:-1])
    if len(filled) < 10 or blanks < max(2, len(filled) / 200):
        return
    widths = Counter(map(len, filled))
    width, most = widths.most_common(1)[0]
    tags = Counter(fields[-1] for fields in filled if len(fields) == width)
    has_tags = any(map(_TAG.fullmatch, tags)) or len(tags) <= min(60, len(filled) / 5)
    if width > 1 and most >= 0.95 * len(filled) and has_tags and len(filled) / blanks >= 2:
        raise refuse(
            path,
            "one token per line with its tags (CoNLL)",
            "Labels of tokens are not a task of seqfit; for text to text, write one row per sentence, with its words "
            "in one column and its tags in another",
        )


def _refuse_blocks(path: Path, lines: Sequence[str]) -> None:
    """An error where blocks of equally many lines, each a field of a record, are separated by blank lines."""
    blocks = [
        len(block.strip("\n").split("\n")) for block in re.split(r"\n[ \t\r]*\n", "\n".join(lines)) if block.strip()
    ]
    size, most = Counter(blocks[:-1]).most_common(1)[0] if len(blocks) > 5 else (1, 0)
    if size > 1 and most >= 0.95 * (len(blocks) - 1):
        raise refuse(
            path,
            f"blocks of {size} lines with a blank line between them",
            f"Write each block as one row of a table: {_TABLES}",
        )


def has_labels(lines: Sequence[str]) -> bool:
    """Whether the first word of every line is a label: a few different ones that occur again and again."""
    filled = [line.split(maxsplit=1) for line in lines if line.strip()]
    if len(filled) < 5 or sum(len(parts) < 2 for parts in filled) > 0.01 * len(filled):
        return False
    counts = Counter(parts[0] for parts in filled)
    if all(label.startswith("__label__") for label in counts):
        return True
    if len(counts) < 2:  # sorted by label: nothing but a label is a number at the beginning of every line
        return len(filled) >= 50 and re.fullmatch(r"-?\d", next(iter(counts))) is not None
    if all(map(_LABEL.fullmatch, counts)):
        return len(counts) <= len(filled) / 4
    return (
        len(filled) >= 50
        and len(counts) <= min(20, len(filled) / 20)
        and all(len(label) > 1 and label[-1] != ":" for label in counts)
    )


def refuse(path: Path, what: str, change: str) -> DataError:
    """The error for a file that is no table."""
    return DataError(complain(f"{path} is {what}", f"Rows are read from {_TABLES}, and from text", change))
