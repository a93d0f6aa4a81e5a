"""Progress of long work: rows so far and of how many, and without a terminal a line every five seconds.

`ReadingProgress` takes every row and calls a `Progress` at most four times per second. Where the number of rows is not
known, it is estimated from the bytes read of the files:

    rows 120,000, 123 MB of 300 MB read      progress("news.jsonl: tokenizing train", 120_000, 292_683)

`ProgressLines` is a `Progress` that prints a line now and then, and none for work of less than five seconds:

    news.jsonl: tokenizing train and validation: 120,000 rows, 41% (12,000 rows/s, about 14 s left)
    news.jsonl: hashing: 1.2 GiB, 40% (410.0 MiB/s, about 4 s left)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from seqfit.units import format_bytes, format_seconds

Progress = Callable[[str, int, int | None], None]  # what, done, of how many
_INTERVAL_SECONDS = 0.25


class RowProgress(int):
    """A number of rows: the type says what is counted."""


class Bytes(int):
    """A number of bytes."""


class ReadingProgress:
    """Reports rows of some files, which are read one after the other or in parallel."""

    def __init__(
        self, progress: Progress | None, what: str, files: Sequence[Path] = (), total: int | None = None
    ) -> None:
        self._progress = progress
        self._what = what
        self._files = files
        self._total = total
        self._next = time.monotonic() + _INTERVAL_SECONDS

    def report(self, rows: int) -> None:
        if self._progress is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        share = measure_read_share(self._files) if self._total is None else None
        total = self._total if share is None else max(rows, round(rows / share))
        self._progress(self._what, RowProgress(rows), total)

    def end(self, rows: int) -> None:
        if self._progress is not None:
            self._progress(self._what, RowProgress(rows), rows)


def measure_read_share(files: Sequence[Path]) -> float | None:
    """The fraction of the files' bytes that this process has read, by its open files; None where that is not known.

    A compressed file counts by its compressed bytes. Only Linux has the position of an open file.
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


_LINE_SECONDS = 5.0


class ProgressLines:
    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._what = ""
        self._began = (0.0, 0)  # when the current work was first reported, and how much was done by then
        self._reported = self._quiet_since = float("-inf")

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, (now, done)
            if now - self._reported > _LINE_SECONDS:  # else it follows directly, and the five seconds go on
                self._quiet_since = now
        self._reported = now
        if now - self._quiet_since >= _LINE_SECONDS:
            self._quiet_since = now
            since, before = self._began
            self._write(describe_progress(what, done, total, done - before, now - since))


def describe_progress(what: str, done: int, total: int | None, recent: int, seconds: float) -> str:
    """One line; the speed is that of the `recent` work, done in the last `seconds`."""
    speed = recent / seconds if seconds > 0 else 0.0
    if isinstance(done, RowProgress):
        counted, rate = f"{done:,} rows", f"{speed:,.0f} rows/s"
    elif isinstance(done, Bytes):
        counted, rate = format_bytes(done), f"{format_bytes(speed)}/s"
    else:
        counted, rate = f"{done:,}" if total is None else f"{done:,} of {total:,}", ""
    share = f", {100 * done / total:.0f}%" if total else ""
    figures = [rate] if speed and rate else []
    if speed and total is not None and done < total:
        left = (total - done) / speed
        figures.append(f"about {f'{left:.0f} s' if left < 59.5 else format_seconds(left)} left")
    return f"{what}: {counted}{share}" + (f" ({', '.join(figures)})" if figures else "")
