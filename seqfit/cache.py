"""The cache of prepared data: entries that are complete or absent, and remembered hashes of files.

In: a key (a hash of everything the content depends on). Out: a folder that holds it. The one idea: an entry is written
under a temporary name, synced and renamed, so that a folder with the final name is complete, whoever wrote it; of two
processes that prepare the same data the second finds the name taken and discards its own copy.

    ~/.cache/seqfit/                    (or $SEQFIT_CACHE)
      tokenized/3f9a.../rows.arrow, facts.json
      tokenized/.3f9a...-x1y2/          being written, or left by a process that was killed: removed after a day
      digests/77c0....json              {"size": 4166206, "mtime_ns": ..., "sha256": "..."} of one data file
      plans-2/5d01....json              a `JsonCache`, here of plans, in the second version of their content
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seqfit.errors import DataError
from seqfit.progress import Bytes, Progress
from seqfit.system import sync_path

# A file changed this recently may change again within the clock's resolution: it is hashed next time as well.
_RACY_SECONDS = 2.0
_CHUNK_BYTES = 1 << 24
_ABANDONED_SECONDS = 86_400.0  # no preparation goes a day without writing


def cache_root() -> Path:
    return Path(os.environ.get("SEQFIT_CACHE") or "~/.cache/seqfit").expanduser()


def find_entry(key: str) -> Path | None:
    folder = _entries() / key
    return folder if folder.is_dir() else None


def drop_entry(key: str) -> None:
    """Remove a corrupted entry. Processes that have it open keep it."""
    with _explained_errors():
        aside = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=_entries()))
        with suppress(FileNotFoundError):  # another process was first
            os.replace(_entries() / key, aside)
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def new_entry(key: str) -> Iterator[Path]:
    """A folder to write to; it gets its final name when the block ends, and is removed if the block fails."""
    entries = _entries()
    with _explained_errors():
        entries.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(entries)
        draft = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=entries))
    try:
        with _explained_errors():
            yield draft
            for path in (*draft.iterdir(), draft):
                sync_path(path)
            try:
                draft.rename(entries / key)
            except OSError as error:
                # Another process was first; its content is the same, because the key is a hash of all that decides it.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            sync_path(entries)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class JsonCache:
    """Small JSON values, one file per key, replaced as a whole.

    A new `version` starts empty: what an older one stored has another form and is not read.
    """

    def __init__(self, folder: str, version: int = 1) -> None:
        self._folder = folder if version == 1 else f"{folder}-{version}"

    def path(self, key: str) -> Path:
        return cache_root() / self._folder / f"{key}.json"

    def read(self, key: str) -> Any:
        """Raises OSError or ValueError where there is none, or where it is corrupted."""
        return json.loads(self.path(key).read_text("utf-8"))

    def get(self, key: str) -> Any:
        try:
            return self.read(key)
        except (OSError, ValueError):  # not JSON, not UTF-8
            return None

    def put(self, key: str, value: Any) -> None:
        """Whoever reads it meanwhile has the old value or the new one, never a part."""
        path = self.path(key)
        with _explained_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file)
            os.replace(draft, path)


_DIGESTS = JsonCache("digests")


def file_digest(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of a file's content, remembered by path, size and modification time, so that it is read once."""
    status = path.stat()
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    known = _DIGESTS.get(key)
    facts = {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if isinstance(known, dict) and isinstance(known.get("sha256"), str) and known.items() >= facts.items():
        return str(known["sha256"])
    digest = _hash_content(path, progress)
    if time.time() - status.st_mtime > _RACY_SECONDS:
        _DIGESTS.put(key, facts | {"sha256": digest})
    return digest


def _hash_content(path: Path, progress: Progress | None) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            if progress is not None:
                progress(f"{path.name}: hashing", Bytes(file.tell()), size)
    return digest.hexdigest()


def _entries() -> Path:
    return cache_root() / "tokenized"


def _remove_abandoned(entries: Path) -> None:
    """Drafts of processes that were killed: nothing in them has changed for a day."""
    for draft in entries.glob(".*"):
        with suppress(FileNotFoundError):  # another process is just publishing it
            newest = max(path.stat().st_mtime for path in (draft, *draft.glob("*")))
            if time.time() - newest > _ABANDONED_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _explained_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise DataError(
            f"{cache_root()}: {os.strerror(error.errno)}",
            "tokenized data, plans and measurements are cached there",
            "Free some space, or set SEQFIT_CACHE to a folder on another disk",
        ) from error
