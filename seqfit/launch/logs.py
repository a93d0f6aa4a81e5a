"""The log of a run's newest job, and what it prints from now on.

In: a run directory. Out: parts of the text, in order. A requeued job appends to the log it had, so there is one file
per submission, and it may not be there yet.

    follow:  no file yet (the job is pending) ... "step 10/500 ..." ... "step 20/500 ..." ... the job is over: end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from seqfit.errors import RunError
from seqfit.launch.slurm import last_submission, read_status
from seqfit.system import quote

_LOOK_SECONDS = 1.0
_QUERY_SECONDS = 15.0  # between two queries of Slurm's controller, which all users share
_ENDING = " ended with code "  # printed by the job file: worth a query at once


def read_log(run: Path, lines: int | None = None) -> str:
    """The whole log, or its last lines."""
    log = last_submission(run).log
    if not log.is_file():
        raise RunError(
            f"'{log}' is not there yet",
            "a job starts its log when it gets nodes",
            f"Wait for it: seqfit logs {quote(run)} --follow, or see seqfit status {quote(run)}",
        )
    return _last_lines(log.read_text("utf-8", errors="replace"), lines)


def follow_log(run: Path, lines: int | None, report: Callable[[str], None]) -> Iterator[str]:
    """The same, and what comes after it, until the job is over; `report` is called with why there is nothing yet."""
    status, queried, reported = read_status(run), time.monotonic(), ""
    log = status.submission.log
    text, position = _read_from(log, 0)
    yield _last_lines(text, lines)
    while not status.is_over:
        if position == 0 and status.queue != reported:
            reported = status.queue
            report(f"job {status.submission.job}: {reported}")
        time.sleep(_LOOK_SECONDS)
        text, position = _read_from(log, position)
        yield text
        if time.monotonic() - queried >= _QUERY_SECONDS or _ENDING in text:
            status, queried = read_status(run), time.monotonic()
    yield _read_from(log, position)[0]  # what came during the query


def _last_lines(text: str, lines: int | None) -> str:
    return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:])


def _read_from(log: Path, position: int) -> tuple[str, int]:
    """Complete lines after a position, and the new position."""
    if not log.is_file():
        return "", position
    with open(log, "rb") as stream:
        stream.seek(position)
        found = stream.read()
    whole = found[: found.rfind(b"\n") + 1]
    return whole.decode("utf-8", errors="replace"), position + len(whole)
