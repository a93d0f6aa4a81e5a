"""Text files as lines or chunks, in any encoding, compressed or not.

In: a path. Out: decoded lines or chunks, one at a time, so that a file of any size takes the memory of one piece.
The one idea: bytes are decoded here and nowhere else. What does not decode is an error that names the line, or, for
a reader that can leave out a row, text in which each broken byte is one character that no real text has (`BROKEN`).

    b"\\xef\\xbb\\xbfa\\nb\\r\\n" -> "a\\n", "b\\r\\n"     (the byte order mark goes, line ends stay)
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from seqfit.data.archives import reading
from seqfit.data.encoding import find_encoding
from seqfit.errors import DataError, complain, did_you_mean

_CHUNK_BYTES = 1 << 20
_BOM = "\ufeff"


def require_file(path: Path, field: str = "data.path") -> Path:
    """The path itself, or an error that lists what the folder has instead."""
    if path.exists():
        return path
    folder = path.parent
    if not folder.is_dir():
        raise DataError(complain(f"{path} does not exist", "Neither does its folder", f"Set {field} to what exists"))
    names = list_folder(folder)
    if not names:
        raise DataError(complain(f"{path} does not exist", "Its folder is empty", f"Set {field} to what exists"))
    has = f"The folder has: {', '.join(names)}"
    known = [entry.name for entry in folder.iterdir()]  # all of them: the listing is short
    raise DataError(
        complain(f"{path} does not exist", has, f"Set {field} to one of them") + did_you_mean(path.name, known)
    )


def list_folder(folder: Path, most: int = 20) -> list[str]:
    """Names in a folder for a message: folders end in /, hidden files are left out."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries[:most]]
    return [*names, f"and {len(entries) - most} more"] if len(entries) > most else names


def read_lines(path: Path, encoding: str = "auto", *, keep_broken: bool = False) -> Iterator[str]:
    r"""Lines with their ends. Only \n ends a line (\r where there is no \n): sentences have other separators inside.

    `keep_broken`: a line that does not decode comes with `BROKEN` characters instead of being an error.
    """
    found = find_encoding(path, encoding)
    if found.is_wide or found.line_end == "\r":
        yield from _split(read_chunks(path, encoding, keep_broken=keep_broken), found.line_end)
        return
    errors = "surrogateescape" if keep_broken else "strict"
    with reading(path) as file:
        yield from decode_lines(file, str(path), found.name, errors)


def _split(chunks: Iterable[str], line_end: str) -> Iterator[str]:
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(line_end)
        yield from (line + line_end for line in lines)
    if rest:
        yield rest


def decode_lines(lines: Iterable[bytes], name: str, encoding: str = "utf-8", errors: str = "strict") -> Iterator[str]:
    """Decoded lines without the byte order mark; `name` is what an error calls them."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode(encoding, errors)
        except UnicodeDecodeError as error:
            raise _not_decoded(name, number, error) from error
        yield text.removeprefix(_BOM) if number == 1 else text


def read_chunks(path: Path, encoding: str = "auto", *, keep_broken: bool = False) -> Iterator[str]:
    """The decoded text in pieces of about 1 MiB."""
    found = find_encoding(path, encoding)
    errors = "surrogateescape" if keep_broken and not found.is_wide else "strict"
    decoder = codecs.getincrementaldecoder(found.name)(errors)
    lines, is_first = 1, True
    chunk = b""
    with reading(path) as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                text = decoder.decode(chunk)
                yield text.removeprefix(_BOM) if is_first else text
                is_first = False
                lines += chunk.count(b"\n")
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            # The decoder may hold some bytes of the chunk before; a cut character has no line end in it.
            raise _not_decoded(str(path), lines + chunk[: error.start].count(b"\n"), error) from error


def read_beginning(path: Path, encoding: str, characters: int) -> str:
    """About so many characters of the beginning, with `BROKEN` ones where bytes do not decode."""
    pieces, size = [], 0
    for chunk in read_chunks(path, encoding, keep_broken=True):
        pieces.append(chunk)
        size += len(chunk)
        if size >= characters:
            break
    return "".join(pieces)[:characters]


def count_lines(path: Path) -> int:
    """Lines of a text file, the last with or without its end; counted once per file."""
    status = path.stat()
    return _count(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _count(path: Path, size: int, mtime_ns: int) -> int:
    with reading(path) as file:
        count, last = 0, b"\n"
        while chunk := file.read(_CHUNK_BYTES):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")


def _not_decoded(name: str, line: int, error: UnicodeDecodeError) -> DataError:
    byte = error.object[error.start]
    encoding = error.encoding.upper() if error.encoding.startswith("utf") else error.encoding
    return DataError(
        complain(
            f"{name}, line {line}: byte 0x{byte:02x} is not {encoding}",
            f"The text is read as {encoding}",
            "Correct the line, or set data.encoding to what the file is in",
        )
    )
