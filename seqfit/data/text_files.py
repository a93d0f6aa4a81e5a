"""Text files as lines or chunks, plain or gzip, with errors that name the line.

In: a path. Out: decoded lines or chunks, one at a time, so that a file of any size takes the memory of one piece.
The one idea: bytes are decoded here and nowhere else, line by line or chunk by chunk, so a byte that is not UTF-8
is reported with its line instead of with an offset into an internal buffer.

    b"\\xef\\xbb\\xbfa\\nb\\r\\n" -> "a\\n", "b\\r\\n"     (the byte order mark goes, line ends stay)
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

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


def read_lines(path: Path) -> Iterator[str]:
    r"""Lines with their ends. Only \n ends a line: parallel files have other separators inside sentences."""
    with _open_bytes(path) as file:
        try:
            yield from decode_lines(file, str(path))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of UTF-8 without the byte order mark; `name` is what an error calls them."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(name, number, error) from error
        yield text.removeprefix(_BOM) if number == 1 else text


def read_chunks(path: Path) -> Iterator[str]:
    """The decoded text in pieces of about 1 MiB."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    lines = 1
    with _open_bytes(path) as file:
        chunk = b""
        try:
            while chunk := file.read(_CHUNK_BYTES):
                yield decoder.decode(chunk)
                lines += chunk.count(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            # The decoder may hold some bytes of the chunk before; a cut character has no line end in it.
            raise _not_utf8(str(path), lines + chunk[: error.start].count(b"\n"), error) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error


def _open_bytes(path: Path) -> io.BufferedIOBase:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _not_utf8(name: str, line: int, error: UnicodeDecodeError) -> DataError:
    byte = error.object[error.start]
    return DataError(
        complain(
            f"{name}, line {line}: byte 0x{byte:02x} is not UTF-8",
            "Data files are read as UTF-8",
            f"Convert it, for example: iconv -f WINDOWS-1252 -t UTF-8 {Path(name).name} > utf8-{Path(name).name}",
        )
    )


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        complain(
            f"{path} does not unpack: {error}", "A .gz file must be whole", "Fetch it again, and check with: gzip -t"
        )
    )
