"""How far reading is: rows so far, and of how many.

In: rows as they go by. Out: calls of a `Progress`, at most four per second, so that a caller may count every row. Where
the number of rows is not known, it is estimated from the bytes read of the files:

    rows 120,000, 123 MB of 300 MB read      progress("news.jsonl: tokenizing train", 120_000, 292_683)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

Progress = Callable[[str, int, int | None], None]  # what, done, of how many
_INTERVAL_SECONDS = 0.25


class Rows(int):
    """A number of rows, so that whoever shows progress can say what is counted."""


class Bytes(int):
    """A number of bytes."""


class ReadingProgress:
    """Reports rows of some files, which are read one after the other or side by side."""

    def __init__(
        self, progress: Progress | None, what: str, files: Sequence[Path] = (), total: int | None = None
    ) -> None:
        self._progress = progress
        self._what = what
        self._files = files
        self._total = total
        self._next = time.monotonic() + _INTERVAL_SECONDS

    def report(self, rows: int) -> None:
        """So many rows are done."""
        if self._progress is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        self._progress(self._what, Rows(rows), self._total if self._total is not None else self._estimate(rows))

    def end(self, rows: int) -> None:
        """These were all."""
        if self._progress is not None:
            self._progress(self._what, Rows(rows), rows)

    def _estimate(self, rows: int) -> int | None:
        share = measure_read_share(self._files)
        return None if share is None else max(rows, round(rows / share))


def measure_read_share(files: Sequence[Path]) -> float | None:
    """The share of the files' bytes that this process has read, by its open files; None where that is not known.

    A compressed file counts by its compressed bytes. Only Linux says how far an open file is read.
    """
    if not psutil.LINUX:
        return None
    paths = [str(file.resolve()) for file in files]
    try:
        positions = {file.path: getattr(file, "position", 0) for file in psutil.Process().open_files()}
        sizes = [file.stat().st_size for file in files]
    except (OSError, psutil.Error):
        return None
    opened = [number for number, path in enumerate(paths) if path in positions]
    if not opened or not any(positions[paths[number]] for number in opened):
        return None
    read = sum(sizes[: opened[0]]) + sum(positions[paths[number]] for number in opened)
    return min(1.0, read / sum(sizes))
