"""What a run's jobs have printed, and what they go on to print.

In: a run directory. Out: pieces of text, in order. The one idea: a requeued job appends to the log it had, so there is
one file to read for each submission, and it may not be there yet.

    follow:  no file yet (the job waits) ... "step 10/500 ..." ... "step 20/500 ..." ... the job is over: end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from seqfit.errors import RunError
from seqfit.launch.slurm import last_submission, read_status
from seqfit.system import quote

_LOOK_SECONDS = 1.0
_ASK_SECONDS = 15.0  # between two questions to Slurm's controller, which all users share
_ENDING = " ended with code "  # in the job file's own words: worth a question at once


def read_log(run: Path, lines: int | None = None) -> str:
    """The newest job's log, or its last lines."""
    log = last_submission(run).log
    if not log.is_file():
        raise RunError(
            f"'{log}' is not there yet",
            "a job writes its log as soon as it has nodes",
            f"Wait for it: seqfit logs {quote(run)} --follow, or see seqfit status {quote(run)}",
        )
    return _last_lines(log.read_text("utf-8", errors="replace"), lines)


def follow_log(run: Path, lines: int | None, tell: Callable[[str], None]) -> Iterator[str]:
    """The same, and what comes after it, until the job is over; `tell` hears why there is nothing yet."""
    standing, asked, said = read_status(run), time.monotonic(), ""
    log = standing.submission.log
    text, position = _read_from(log, 0)
    yield _last_lines(text, lines)
    while not standing.is_over:
        if position == 0 and standing.queue != said:
            said = standing.queue
            tell(f"job {standing.submission.job}: {said}")
        time.sleep(_LOOK_SECONDS)
        text, position = _read_from(log, position)
        yield text
        if time.monotonic() - asked >= _ASK_SECONDS or _ENDING in text:
            standing, asked = read_status(run), time.monotonic()
    yield _read_from(log, position)[0]  # what came while Slurm was asked


def _last_lines(text: str, lines: int | None) -> str:
    return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:])


def _read_from(log: Path, position: int) -> tuple[str, int]:
    """What was added behind a position, and the new one; a line that is being written waits for its end."""
    if not log.is_file():
        return "", position
    with open(log, "rb") as stream:
        stream.seek(position)
        found = stream.read()
    whole = found[: found.rfind(b"\n") + 1]
    return whole.decode("utf-8", errors="replace"), position + len(whole)
