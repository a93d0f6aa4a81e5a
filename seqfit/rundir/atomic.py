"""Files and folders that are replaced as a whole: a reader, and a process that is killed, find the old or the new one.

    checkpoint/         the old one          .checkpoint.new/    written, synced
    .checkpoint.old/    the old one          checkpoint/         the new one        then .checkpoint.old/ goes

A kill between the two renames leaves `.checkpoint.old` and no `checkpoint`: `start_draft` restores it.
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
from seqfit.system import quote, replace_file, sync_path


@contextmanager
def explained_failures(path: Path, run: Path | None = None) -> Iterator[None]:
    """A disk that is full or gone becomes an error that says what to do. `run` is the one that can be resumed then."""
    try:
        yield
    except OSError as error:
        raise TrainingFailed(
            f"'{path}' can't be written ({error.strerror or error})",
            "a run writes its records to the disk as it goes",
            f"Free or repair the disk, then {describe_resume(run) if run is not None else 'try again'}",
        ) from error


def describe_resume(run: Path) -> str:
    """'run: seqfit train runs/demo --resume'."""
    return f"run: seqfit train {quote(run)} --resume"


def write_text(path: Path, text: str, run: Path | None = None) -> None:
    """Replace a file, synced."""
    with explained_failures(path, run):
        replace_bytes(path, text.encode("utf-8", "backslashreplace"))  # half a surrogate


def write_json(path: Path, value: Any, run: Path | None = None) -> None:
    """As indented JSON; NaN is refused, because JSON has none."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n", run)


def replace_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary name, sync, rename."""
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


def draft_of(folder: Path) -> Path:
    """Where a folder is written before it is complete."""
    return folder.with_name(f".{folder.name}.new")


def replaced_by(folder: Path) -> Path:
    """Where the folder that it replaces is, between the two renames."""
    return folder.with_name(f".{folder.name}.old")


def start_draft(folder: Path) -> Path:
    """The draft of a folder, not there yet; what a process left that was killed is restored or removed."""
    draft, old = draft_of(folder), replaced_by(folder)
    if old.exists() and not folder.exists():
        os.replace(old, folder)
    for leftover in (draft, old):
        shutil.rmtree(leftover, ignore_errors=True)
    return draft


def replace_folder(folder: Path) -> None:
    """Put the draft of a folder in its place, synced."""
    draft, old = draft_of(folder), replaced_by(folder)
    for path in (*draft.rglob("*"), draft):
        sync_path(path)
    if folder.exists():
        os.replace(folder, old)
    os.replace(draft, folder)
    sync_path(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
