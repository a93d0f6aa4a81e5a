"""Compressed files and archives, recognised by content and not by the file extension.

In: a path. Out: the bytes of a compressed file (gzip, bzip2, xz, zstd) as a stream, or the files of a zip or tar
archive in a folder. The one idea: a compressed file is decompressed each time it is read; an archive is unpacked once
into the cache, under a hash of its content, and is then a folder like any other.

    reviews.csv.gz               -> a stream of reviews.csv
    corpus.zip                   -> ~/.cache/seqfit/unpacked/3f9a.../corpus/train.csv, corpus/test.csv
      corpus/train.csv, corpus/test.csv, __MACOSX/corpus/._train.csv
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from seqfit.cache import cache_root, file_digest
from seqfit.errors import DataError
from seqfit.units import format_bytes

COMPRESSED_ENDINGS = (".gz", ".bz2", ".xz", ".zst")
ARCHIVE_ENDINGS = (".zip", ".tar", ".tgz", ".tbz2", ".txz")
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_OFFICE_FILES = {"[Content_Types].xml", "mimetype"}  # Excel, Word and OpenDocument files are zip archives as well


def plain_file_name(name: str) -> str:
    """The name without the extension of a compressed file: train.csv.gz -> train.csv."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in COMPRESSED_ENDINGS else name


def open_bytes(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        head = file.read(6)
    for magic, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
        if head.startswith(magic):
            return cast(IO[bytes], module.open(path, "rb"))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa

        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"), 1 << 20)
    return path.open("rb")


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """An open file; corrupted compressed data is a DataError that names it."""
    try:
        with open_bytes(path) as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk, not the content
            raise
        raise _corrupted(path, error) from error


def read_head(path: Path, size: int) -> bytes:
    with reading(path) as file:
        return file.read(size)


def is_archive(path: Path) -> bool:
    """Whether the file is a zip or tar archive (compressed or not), and not an Excel or Word document."""
    head = read_head(path, _TAR_MAGIC_AT + len(_TAR_MAGIC))
    if head.startswith(b"PK\x03\x04"):
        return not _OFFICE_FILES & set(zip_names(path))
    return head[_TAR_MAGIC_AT:] == _TAR_MAGIC


def zip_names(path: Path) -> list[str]:
    """Names of the members of a zip archive; none if it is corrupted."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except zipfile.BadZipFile:
        return []


def unpack(path: Path) -> Path:
    place = cache_root() / "unpacked" / file_digest(path)[:40]
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    try:
        _unpack_to(path, draft)
        try:
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # it is there if another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


def _unpack_to(path: Path, folder: Path) -> None:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                infos = [info for info in archive.infolist() if not info.is_dir()]
                _check_room(path, sum(info.file_size for info in infos), folder)
                for info in infos:
                    _copy(folder, info.filename, lambda info=info: archive.open(info))
        else:
            with tarfile.open(path, "r:*") as archive_tar:
                for member in archive_tar:
                    if member.isfile():
                        _check_room(path, member.size, folder)
                        _copy(folder, member.name, lambda member=member: archive_tar.extractfile(member))
    except (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError) as error:
        raise _corrupted(path, error) from error
    except RuntimeError as error:  # zipfile raises it for a password
        raise DataError(
            f"{path}: {error}",
            "An archive must open without a password",
            "Unpack it, and set data.path to the unpacked folder",
        ) from error


def _check_room(path: Path, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"{path} unpacks to {format_bytes(size)}, and {cache_root()} has {format_bytes(free)} of free space",
            "An archive is unpacked into the cache",
            "Free some space, or set the environment variable SEQFIT_CACHE to a folder on another disk",
        )


def _copy(folder: Path, name: str, opened: Any) -> None:
    """One member, unless it is a macOS metadata file or its path leads out of the folder."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if any(part in ("..", "__MACOSX") or part.startswith(("/", ".")) or ":" in part for part in parts):
        return
    place = folder.joinpath(*parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    with opened() as source, place.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def _corrupted(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} can't be unpacked: {error or type(error).__name__}",
        "A compressed file must be complete",
        "Download it again, and check it with gzip -t, unzip -t or xz -t",
    )
