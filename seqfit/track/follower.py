"""The following process: `python -m seqfit.track.follower RUN --to TOOL`, started by `seqfit train --track`, beside it.

In: a run directory that need not be there yet. Out: its records in the tool. It ends when the run has ended, or when
its standard input ends, which happens when the process that trains is done or gone. It is its own process, with a
lower priority: a tool that fails, hangs or is slow is nothing that training notices.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from seqfit.errors import SeqfitError
from seqfit.track.export import Following, follow_runs
from seqfit.track.tracker import TOOLS, open_tracker

_NICE = 10
_FOR_EVER = float("inf")  # whoever started this says when the run is gone


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow one run; the exit code is 0, or 2 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="seqfit.track.follower")
    parser.add_argument("folder", type=Path, help="the run directory")
    parser.add_argument("--to", choices=list(TOOLS), required=True, help="the tool")
    parser.add_argument("--project", required=True, help="the project in the tool")
    given = parser.parse_args(arguments)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    parent, left = os.getppid(), threading.Event()
    threading.Thread(target=_wait_for_end, args=(sys.stdin.fileno(), left), daemon=True).start()
    following = Following(
        given.folder,
        partial(open_tracker, given.to),
        given.project,
        patience_seconds=_FOR_EVER,
        # A process that the run forked may hold the other end open; a parent's id changes when the parent dies.
        is_left=lambda: left.is_set() or os.getppid() != parent,
    )
    try:
        follow_runs([following])
    except SeqfitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _wait_for_end(descriptor: int, left: threading.Event) -> None:
    """Blocks until the other end is closed. Reads the descriptor itself: a stream's lock would stop Python's exit."""
    while os.read(descriptor, 4096):
        pass
    left.set()


if __name__ == "__main__":
    sys.exit(main())
