"""The tracker process: `python -m seqfit.tracking.follower RUN --to TOOL`, started by `seqfit train --track`.

In: a run directory that need not be there yet. Out: its records in the tool. It ends when the run has ended, or when
its standard input ends, which happens when the process that trains is done or gone. It is its own process, with a
lower priority: a tool that fails, hangs or is slow is nothing that training notices.

A follower beside a run: started before training, let go after it, never waited for longer than a moment.

In: the directory that the run will write, and a tool. Out: the run in that tool while it goes on. What goes wrong is
told, to the user and as an event of the run; training itself never hears of it.

    with Beside(Path("runs/demo"), "tensorboard", "seqfit", tell=print):
        train(...)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from seqfit.errors import SeqfitError, describe_exit
from seqfit.rundir import files
from seqfit.rundir.notes import optional_work
from seqfit.rundir.writer import add_event
from seqfit.system import own_session, quote
from seqfit.tracking.track import Following, follow_runs
from seqfit.tracking.tracker import TOOLS, check_tool, open_tracker

_NICE = 10
_FOR_EVER = float("inf")  # whoever started this says when the run is gone


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow one run; the exit code is 0, or 2 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="seqfit.tracking.follower")
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


_PATIENCE_SECONDS = 10.0  # at the end of the run, for what is still to be sent


class TrackerProcess:
    """The run's side of the following process. A tool that is not installed is an error at once."""

    def __init__(self, folder: Path, tool: str, project: str, tell: Callable[[str], None]) -> None:
        check_tool(tool)
        self._folder = folder
        self._tool = tool
        self._project = project
        self._tell_user = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: str | None = None
        # No pipe: one that nobody reads fills up and stops the follower. Closed in __exit__.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Self:
        if not (self._folder / files.MANIFEST).is_file():
            self._start()
        else:  # a run that is gone on with, or another one, and training will refuse
            later = f"seqfit track {quote(self._folder)} --to {self._tool}"
            self._tell_user(f"'{self._folder}' is there already and is not followed; afterwards: {later}")
        return self

    def _start(self) -> None:
        command = [sys.executable, "-m", "seqfit.tracking.follower", str(self._folder), "--to", self._tool]
        command += ["--project", self._project]
        with optional_work("tracking", f"nothing is sent to {self._tool}", self._keep):
            self._process = subprocess.Popen(  # in a session that Ctrl-C in the run's terminal does not reach
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                **own_session(),
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._said, optional_work("tracking", "the tracker's end is not known", self._keep):
            if self._process is not None:
                self._let_go(self._process)
        if self._kept is not None and (self._folder / files.MANIFEST).is_file():
            with optional_work("tracking", "no event is written", lambda _kind, message: self._tell_user(message)):
                add_event(self._folder, "tracking", self._kept)

    def _keep(self, _kind: str, message: str) -> None:
        """A failure here, for the user at once, and for the run's events when there is a run."""
        self._tell_user(message)
        self._kept = message

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        if not (self._folder / files.MANIFEST).is_file():  # a mistake ended training before it began
            process.kill()
            process.communicate()
            return
        try:
            process.communicate(timeout=_PATIENCE_SECONDS)  # closes its standard input, the sign to end
        except subprocess.TimeoutExpired:
            self._tell(f"process {process.pid} still sends the run to {self._tool}; it ends by itself")
            return
        if process.returncode != 0:
            self._said.seek(0)
            lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
            ended = f"the process that sends it {describe_exit(process.returncode)}"
            reason = lines[-1] if lines and process.returncode > 0 else ended  # who was killed could not say why
            self._tell(f"the run could not be sent to {self._tool}: {reason}")

    def _tell(self, message: str) -> None:
        """To the user, and as an event of the run."""
        self._tell_user(message)
        add_event(self._folder, "tracking", message)
