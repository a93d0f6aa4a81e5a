"""A page that follows its runs: folders come in, parts and a version that changes with the records go out.

The one idea: looking is cheap, building is not. Looking reads names, sizes and times of the record files, no content;
the version is their hash. Parts are built when somebody asks for them, once for each version, for all who ask.

    page = LivePage([Path("runs")])    a folder that gets runs later is as good as a run or a comparison
    page.look()                        '5f0c82d1'; the same again until a record is written
    page.build()                       Shown(version='5f0c82d1', title='demo · seqfit', parts=[...])

Runs appear, vanish and are half-written while they are looked at. Where a page can't be built, the last one stays,
under a note that says why.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import SeqfitError
from seqfit.report.elements import Html, section
from seqfit.report.page import build_parts
from seqfit.rundir import files
from seqfit.rundir.run import is_being_written

_RECORDS = (".json", ".jsonl", ".yaml")
_LEFT_OUT = {files.CHECKPOINT, files.SNAPSHOTS, files.RANKS}  # large, and no part of the page
_DEEPEST = 3  # folders below the one given: a comparison in it, its runs/, a run


@dataclass(frozen=True)
class Shown:
    """What is on the page now."""

    version: str
    title: str
    parts: Sequence[Html]


class LivePage:
    """The page of some folders, as new as the last look at them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._building = threading.Lock()
        self._shown: Shown | None = None
        self.build_seconds = 0.0  # of the last build

    def look(self) -> str:
        """The version: a hash of which record files there are, how long and how old."""
        seen = [entry for path in self._paths for entry in _list_records(path, _DEEPEST)]
        return hashlib.sha256(repr(sorted(seen)).encode()).hexdigest()[:16]

    def build(self) -> Shown:
        """The page of this moment; whoever asks while it is being built waits for it."""
        with self._building:
            version = self.look()  # before the build: what is written meanwhile makes a newer version
            if self._shown is None or self._shown.version != version:
                started = time.perf_counter()
                self._shown = self._build(version)
                self.build_seconds = time.perf_counter() - started
            return self._shown

    def _build(self, version: str) -> Shown:
        try:
            title, parts = build_parts(self._paths)
        except (SeqfitError, OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            return self._keep_last(version, f"{type(error).__name__}: {error}")  # any shape of JSON may be half a file
        return Shown(version, title, parts)

    def _keep_last(self, version: str, why: str) -> Shown:
        note = section("Not up to date", note=f"The page can't be built from what is on the disk now ({why}).")
        last = self._shown
        parts = [part for part in last.parts if "<h2>Not up to date</h2>" not in part] if last else []
        return Shown(version, last.title if last else "seqfit", [note, *parts])


def _list_records(path: Path, deepest: int) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each record file below a folder, and whether the locks there are held."""
    try:
        entries = list(os.scandir(path))
    except OSError:  # vanished, which the version shows
        return
    for entry in entries:
        if entry.name == files.LOCK:  # a process that is killed writes nothing more, but lets go of it
            yield entry.path, int(is_being_written(path)), 0
        elif entry.name.startswith(".") or entry.name in _LEFT_OUT:
            continue
        elif entry.name.endswith(_RECORDS):
            try:
                status = entry.stat()
            except OSError:  # gone between the listing and here
                continue
            yield entry.path, status.st_size, status.st_mtime_ns
        elif deepest and entry.is_dir():
            yield from _list_records(Path(entry.path), deepest - 1)
