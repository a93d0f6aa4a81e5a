"""What a file is, by its content: its format, and whether its first line is a header.

`recognise_format`: the file extension is a hint, and the first bytes decide; so a CSV file called .xlsx is read, and a
web page that was saved as .csv is a DataError that says what the file is and what to do.

    train.txt   {"text": "a"}            jsonl
    vocab.data  abandon<tab>-2           separated
    TREC.all    NUM:date When was it ?   labelled
    a.conll     EU<tab>B-ORG             refused: one token per line

`classify_first_row`: a header differs from the values below it, and a row does not. Each column gives evidence for one
or the other; if there is little evidence or it is contradictory, the verdict is "unsure".

    text,label      a name above prose, a name that is not a label  header
    Great film,pos
    ham,Ok lar      'ham' occurs again in its column                row
    ham,Nah
    dog,perro       two words above two words                       unsure
    cat,gato
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from seqfit.data.archives import is_archive, read_head, zip_names
from seqfit.data.name_words import KNOWN
from seqfit.data.separated import find_dialect_by_content
from seqfit.data.text_files import read_beginning
from seqfit.errors import DataError

SAMPLE_LINES = 1000
_SAMPLE_CHARACTERS = 1 << 20
_BINARY: tuple[tuple[bytes | tuple[bytes, ...], str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "an image (PNG)"),
    (b"\xff\xd8\xff", "an image (JPEG)"),
    (b"GIF8", "an image (GIF)"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite database"),
    ((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), "a Python pickle"),
    (b"RIFF", "a sound or video file"),
    ((b"ID3", b"OggS"), "a sound file"),
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
_WRITE_TABLE = f"Write its rows to {_TABLES}"
_LABEL = re.compile(r"-?\d{1,3}|[A-Z][A-Z_]*(:\w+)?|\w+:\w+|__label__\S+")
_TAG = re.compile(r"[BIESLU]-\S+")
_STAMP = re.compile(r"\W*\d[\d\W]{3,}")  # a date, a time or an id
_NUMBERED = re.compile(r"[\d\W]*\d[\d\W]*\s")


def recognise_format(path: Path, encoding: str = "auto") -> str:
    if (found := _recognise_binary(path)) is not None:
        return found
    text = read_beginning(path, encoding, _SAMPLE_CHARACTERS)
    every = text.split("\r" if "\r" in text and "\n" not in text else "\n")
    lines = every[:SAMPLE_LINES]
    head = text[:2000].lstrip("\ufeff \t\r\n").lower()
    if head.startswith(("<!doctype html", "<html")):
        raise refuse(path, "a web page", "Download the file itself; on GitHub use its 'Raw' link")
    is_xml = path.suffix.lower() in (".xml", ".sgm", ".sgml", ".tei", ".tmx", ".xliff") and head.startswith("<")
    if is_xml or re.match(r"<\?xml|<[a-z][\w-]*( [^>]*)?>\s*<[a-z]", head):
        raise refuse(path, "XML", f"Write one row per item to {_TABLES}, for example with pandas.read_xml")
    if path.suffix.lower() in _OTHERS:
        raise refuse(path, _OTHERS[path.suffix.lower()], _WRITE_TABLE)
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith(("{", "[")) and (found := _recognise_json(stripped)):
        return found
    refuse_tokens(path, lines)
    if find_dialect_by_content(lines, is_whole=len(text) < _SAMPLE_CHARACTERS) is not None:
        return "separated"
    if has_labels(every[: -1 if len(text) >= _SAMPLE_CHARACTERS else None]):
        return "labelled"
    blocks = [
        len(block.strip("\n").split("\n")) for block in re.split(r"\n[ \t\r]*\n", "\n".join(lines)) if block.strip()
    ]
    size, most = Counter(blocks[:-1]).most_common(1)[0] if len(blocks) > 5 else (1, 0)
    if size > 1 and most >= 0.95 * (len(blocks) - 1):  # one line per field of a record
        what = f"blocks of {size} lines with a blank line between them"
        raise refuse(path, what, f"Write each block as one row of a table: {_TABLES}")
    return "text"


def _recognise_binary(path: Path) -> str | None:
    head = read_head(path, 4096)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        if path.suffix.lower() in (".doc", ".ppt", ".msg"):
            raise refuse(path, "an Office document", "Copy its table into a spreadsheet and save it as .xlsx or .csv")
        return "excel"
    if head.startswith(b"PK\x03\x04") and not is_archive(path):
        if any(name.startswith("xl/") for name in zip_names(path)) or b"opendocument.spreadsheet" in head[:200]:
            return "excel"
        raise refuse(path, "an Office document", "Copy its table into a spreadsheet and save it as .xlsx or .csv")
    for magic, what in _BINARY:
        if head.startswith(magic):
            raise refuse(path, what, _WRITE_TABLE)
    if head.startswith(b"version https://git-lfs"):
        raise refuse(path, "a Git LFS pointer instead of the file", "Fetch the file itself with git lfs pull")
    controls = sum(byte < 9 or (13 < byte < 32 and byte != 27) for byte in head)
    is_wide = head.count(0) > 0.2 * len(head) or head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if controls > 0.05 * len(head) and not is_wide:
        raise refuse(path, "a binary file of an unknown kind", _WRITE_TABLE)
    return None


def _recognise_json(text: str) -> str | None:
    """JSON lines if the first line is a whole value and another follows."""
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
        # A value that the sample truncates fails late; '[CLS] text' and '{name} is' fail at once.
        is_json = error.pos > min(100, len(text) / 2) and re.match(r'\{\s*"|\[\s*[\[{"\d-]', text)
        return "json" if is_json else None
    return "json"


def refuse_tokens(path: Path, lines: Sequence[str]) -> None:
    """An error if each line is a word with its tags, and blank lines end sentences (CoNLL)."""
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
            "seqfit does not label single tokens; for text to text, write one row per sentence, with its words "
            "in one column and its tags in another",
        )


def has_labels(lines: Sequence[str]) -> bool:
    """Whether the first word of every line is a label: few different words that occur often."""
    filled = [line.split(maxsplit=1) for line in lines if line.strip()]
    if len(filled) < 5 or sum(len(parts) < 2 for parts in filled) > 0.01 * len(filled):
        return False
    counts = Counter(parts[0] for parts in filled)
    if any(map(_STAMP.fullmatch, counts)) or sum(
        _NUMBERED.match(parts[1]) is not None for parts in filled if len(parts) > 1
    ) > 0.9 * len(filled):
        return False  # a log: 081109 203615 INFO, or Jun 14 15:16:01
    if all(label.startswith("__label__") for label in counts):
        return True
    if len(counts) < 2:  # sorted by label: a number at the beginning of every line can only be a label
        return len(filled) >= 50 and re.fullmatch(r"-?\d", next(iter(counts))) is not None
    if all(map(_LABEL.fullmatch, counts)):
        return len(counts) <= len(filled) / 4
    return (
        len(filled) >= 50
        and len(counts) <= min(20, len(filled) / 20)
        and all(len(label) > 1 and label[-1] != ":" for label in counts)
    )


def refuse(path: Path, what: str, change: str) -> DataError:
    return DataError(f"{path} is {what}", f"Rows are read from {_TABLES}, and from text", change)


_CellKind = Literal["header", "row", "unsure"]
SAMPLE_ROWS = 200
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d+)*|\.\d+)([eE][-+]?\d+)?%?")
_SPECIAL = re.compile(
    r"https?://\S+|www\.\S+|\S+@\S+\.\w+|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|\d{1,2}:\d{2}.*|[\[{(].*[\])}]", re.DOTALL
)
_IDENTIFIER = re.compile(r"[A-Za-z]\w*(_\w+)+|[a-z]+[A-Z]\w*|\w+[ _]?(ID|Id|id|No\.?)")
_MANY_WORDS = 7
_LONG_NAME = 60
_SHORT_TEXT = 20  # characters
_ENDS = (".", "!", "?", "。", "！", "？", "।", "؟")


@dataclass(frozen=True)
class Verdict:
    kind: _CellKind
    reason: str


def classify_first_row(first: Sequence[str], rows: Sequence[Sequence[str]]) -> Verdict:
    for_header: list[tuple[int, str]] = []
    for_row: list[tuple[int, str]] = []
    if len(first) > 1:
        rows = [row for row in rows if list(row) != list(first)]  # concatenated files repeat the header
    below = [[row[at].strip() for row in rows if at < len(row) and row[at].strip()] for at in range(len(first))]
    for cell, values in zip((cell.strip() for cell in first), below, strict=True):
        weight, reason = _weigh_cell(cell, values)
        if weight:
            (for_header if weight > 0 else for_row).append((abs(weight), reason))
    named = [cell.strip() for cell in first if cell.strip()]
    if len(set(named)) < len(named):
        for_row.append((2, "two of its fields are equal"))
    if first and not first[0].strip() and len(named) == len(first) - 1 and is_index(below[0]):
        for_header.append((3, "its first field is empty, above row numbers"))
    header, row = sum(weight for weight, _ in for_header), sum(weight for weight, _ in for_row)
    kind: _CellKind = "unsure"
    if header >= (2 if len(first) > 1 else 3) and (row == 0 or header >= row + 3):
        kind = "header"
    elif row >= 2 and (header == 0 or row >= header + 3):
        kind = "row"
    reasons = {"header": for_header, "row": for_row, "unsure": [*for_header, *for_row]}[kind]
    return Verdict(kind, max(reasons, default=(0, "nothing distinguishes it from the lines below"))[1])


def _weigh_cell(cell: str, values: Sequence[str]) -> tuple[int, str]:
    """The evidence of one column: positive for a header, negative for a row."""
    if not cell:
        return 0, ""
    if not values:
        return (2, f"'{cell}' is a common column name") if is_known(cell) else (0, "")
    if _share(_NUMBER, values) >= 0.9:
        if _NUMBER.fullmatch(cell):
            return -5, f"'{cell}' is a number like the values below it"
        return 3, f"'{cell}' is above numbers"
    if _share(_SPECIAL, values) >= 0.9:
        if _SPECIAL.fullmatch(cell):
            return -3, f"'{shorten_cell(cell)}' is of the same kind as the values below it"
        return (3, f"'{cell}' is above dates, addresses or lists") if _is_name(cell) else (0, "")
    counts = Counter(values)
    if cell in counts:
        return -3, f"'{shorten_cell(cell)}' occurs again in its column"
    if is_known(cell) and not any(map(is_known, values[:20])):
        return 3, f"'{cell}' is a common column name"
    is_prose = median(map(len, values)) >= _SHORT_TEXT
    # Compared with the next rows and not with all: some files are sorted by length.
    if is_prose and _is_name(cell) and len(cell) * 2.5 < median(map(len, values[:10])):
        return 2, f"'{cell}' is shorter than the texts below it"
    if len(cell.split()) >= _MANY_WORDS or len(cell) > _LONG_NAME or (is_prose and len(cell) >= _SHORT_TEXT):
        return -2, f"'{shorten_cell(cell)}' is a text like those below it"
    if cell.endswith(_ENDS) and sum(value.endswith(_ENDS) for value in values) >= 0.3 * len(values):
        return -1, f"'{cell}' ends like a sentence, as do values below it"
    singles = sum(count == 1 for count in counts.values())
    if len(values) >= 10 and singles <= 0.05 * len(values) and _is_name(cell):
        return 2, f"'{cell}' is none of the {len(counts)} values below it"
    if _IDENTIFIER.fullmatch(cell) and not any(_IDENTIFIER.fullmatch(value) for value in values):
        return 1, f"'{cell}' is written like a column name"
    return 0, ""


def _share(pattern: re.Pattern[str], values: Sequence[str]) -> float:
    return sum(pattern.fullmatch(value) is not None for value in values) / len(values)


def is_known(cell: str) -> bool:
    """Whether the first or last word of the name is a common one: 'gold_label', 'sentence1', 'Body ID'."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", cell)]
    is_name = re.fullmatch(r"[\w .#:/()-]+", cell) is not None and _is_name(cell)
    return is_name and 0 < len(words) <= 3 and bool({words[0], words[-1]} & KNOWN)


def _is_name(cell: str) -> bool:
    return (
        len(cell.split()) < _MANY_WORDS
        and len(cell) <= _LONG_NAME
        and not _NUMBER.fullmatch(cell)
        and not re.search(r"[.!…。！，；]$|[,;] |[，。！？]", cell)
    )


def shorten_cell(text: str, most: int = 30) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_index(values: Sequence[str]) -> bool:
    """Whether the values are different whole numbers, like the row numbers of pandas."""
    return bool(values) and all(value.isdecimal() for value in values) and len(set(values)) == len(values)


def name_columns(names: Sequence[str]) -> list[str]:
    """Unique names for all columns: ['a', '', 'a'] -> ['a', 'column2', 'a_2']."""
    given = [name.removeprefix("\ufeff").strip() for name in names]
    found: list[str] = []
    for number, name in enumerate(given, 1):
        base = unique = name or f"column{number}"
        again = 2
        while unique in found or (unique != name and unique in given):
            unique = f"{base}_{again}"
            again += 1
        found.append(unique)
    return found
