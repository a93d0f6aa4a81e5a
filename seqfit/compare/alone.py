"""One tournament at a time in a folder, and an orderly end of it: locks and signals. No torch here.

In: a folder. Out: nothing; the `with` block runs alone, and a signal becomes `Stopped` at a place that can clean up.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from seqfit.errors import RunError, Stopped, complain
from seqfit.rundir import files
from seqfit.system import known_signals, lock_file
from seqfit.train.stopping import select_heeded

_SIGNALS = known_signals("SIGTERM", "SIGHUP", "SIGUSR1")  # the last: Slurm's, before the time of a job is over


@contextmanager
def locked(folder: Path, *, waits: bool = False) -> Iterator[None]:
    """Two tournaments in one folder would run the same trials; `waits`: for who is through in a moment."""
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(lock, waits=waits)
    except OSError as error:
        os.close(lock)
        taken = isinstance(error, BlockingIOError)
        given = f"another process runs the tournament in '{folder}'"
        raise RunError(
            complain(
                given if taken else f"'{folder}' can't be locked ({error.strerror})",
                "one at a time does, which a lock sees to",
                "Wait until it ends, or give another --out",
            )
        ) from error
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def stopped_orderly(how_to_go_on: str) -> Iterator[None]:
    """SIGTERM and a closed terminal end the trial that runs; in other threads than the main one they can't."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(
            complain(
                f"{signal.Signals(number).name} came",
                "a tournament that is asked to stop ends the trial that runs, and keeps those that are done",
                f"Go on with: {how_to_go_on}",
            )
        )

    before = {number: signal.signal(number, stop) for number in select_heeded(_SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
