"""Files and folders that are replaced as a whole: a reader, and a process that is killed, find the old or the new one.

    checkpoint/         the old one          .checkpoint.new/    written, synced
    .checkpoint.old/    the old one          checkpoint/         the new one        then .checkpoint.old/ goes

A kill between the two renames leaves `.checkpoint.old` and no `checkpoint`: the start of the next draft restores it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqfit.errors import TrainingFailed
from seqfit.rundir import files
from seqfit.system import replace_file, sync_path


@contextmanager
def explained_failures(path: Path, run: Path | None = None) -> Iterator[None]:
    """A disk that is full or gone becomes an error that says what to do. `run` is the one that can be resumed then."""
    try:
        yield
    except OSError as error:
        raise TrainingFailed(
            f"'{path}' can't be written ({error.strerror or error})",
            "a run writes its records to the disk as it goes",
            f"Free or repair the disk, then {'try again' if run is None else files.describe_resume(run)}",
        ) from error


def write_text(path: Path, text: str, run: Path | None = None) -> None:
    """Replace a file, synced."""
    with explained_failures(path, run):
        replace_bytes(path, text.encode("utf-8", "backslashreplace"))  # half a surrogate


def write_json(path: Path, value: Any, run: Path | None = None) -> None:
    """As indented JSON; NaN is refused, because JSON has none."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n", run)


def replace_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        replace_file(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class FolderDraft:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.with_name(f".{folder.name}.new")
        self.replaced = folder.with_name(f".{folder.name}.old")  # the folder before, between the two renames

    def start(self) -> Path:
        """The draft's path, where nothing is yet; what a killed process left is restored or removed."""
        if self.replaced.exists() and not self.folder.exists():
            os.replace(self.replaced, self.folder)
        for leftover in (self.path, self.replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        return self.path

    def finish(self) -> None:
        for path in (*self.path.rglob("*"), self.path):
            sync_path(path)
        if self.folder.exists():
            os.replace(self.folder, self.replaced)
        os.replace(self.path, self.folder)
        sync_path(self.folder.parent)
        shutil.rmtree(self.replaced, ignore_errors=True)
