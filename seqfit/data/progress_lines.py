"""Progress where there is no terminal: a line every five seconds, and none for work that ends within them.

In: calls of a `Progress`, however many. Out: now and then a line:

    news.jsonl: tokenizing train and validation: 120,000 rows, 41% (12,000 rows/s, about 14 s left)
    news.jsonl: hashing: 1.2 GiB, 40% (410.0 MiB/s, about 4 s left)
"""

from __future__ import annotations

import time
from collections.abc import Callable

from seqfit.data.progress import Bytes, Rows
from seqfit.units import format_bytes, format_seconds

_INTERVAL_SECONDS = 5.0


class ProgressLines:
    """A `Progress` that writes lines."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._what = ""
        self._began = (0.0, 0)  # when the present work was first heard of, and how much was done by then
        self._heard = self._quiet_since = float("-inf")

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Something is done; a line is written where there was none for five seconds of work."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, (now, done)
            if now - self._heard > _INTERVAL_SECONDS:  # else one work follows on the other, and silence goes on
                self._quiet_since = now
        self._heard = now
        if now - self._quiet_since >= _INTERVAL_SECONDS:
            self._quiet_since = now
            since, before = self._began
            self._write(describe_progress(what, done, total, done - before, now - since))


def describe_progress(what: str, done: int, total: int | None, recent: int, seconds: float) -> str:
    """One line; `recent` is what was done in the seconds, of which the speed is reckoned."""
    counted = f"{done:,} rows" if isinstance(done, Rows) else format_bytes(done) if isinstance(done, Bytes) else ""
    if not counted:
        counted = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    share = f", {100 * done / total:.0f}%" if total else ""
    speed = recent / seconds if seconds > 0 else 0.0
    figures = [_describe_speed(done, speed)] if speed else []
    if speed and total is not None and done < total:
        figures.append(f"about {_round_seconds((total - done) / speed)} left")
    shown = ", ".join(filter(None, figures))
    return f"{what}: {counted}{share}" + (f" ({shown})" if shown else "")


def _describe_speed(done: int, speed: float) -> str:
    if isinstance(done, Rows):
        return f"{speed:,.0f} rows/s"
    return f"{format_bytes(speed)}/s" if isinstance(done, Bytes) else ""


def _round_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else format_seconds(seconds)
