"""The tracker process of a run: `python -m seqfit.tracking.follower RUN --to TOOL`, started by `seqfit train --track`.

In: a run directory that need not be there yet. Out: its records in the tool. It is a separate process with a lower
priority, so training never waits for a tool that is slow, hangs or fails. It ends when the run has ended, or when its
standard input ends, which happens when the training process closes it or is gone.

    with TrackerProcess(Path("runs/demo"), "tensorboard", "seqfit", report=print):
        train(...)                     # a failure of the tool is printed, and an event of the run
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
from typing import Self

from seqfit.errors import SeqfitError, describe_exit
from seqfit.rundir import EventKind, RunWriter, files, optional_work
from seqfit.system import own_session, quote
from seqfit.telemetry import wait_for_closing
from seqfit.tracking.track import Following, follow_runs
from seqfit.tracking.tracker import TOOLS, check_tool, open_tracker

_NICE = 10
_FINISH_SECONDS = 10.0  # at the end of the run, for what is still to be sent


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow one run; the exit code is 0, or 2 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="seqfit.tracking.follower")
    parser.add_argument("folder", type=Path, help="the run directory")
    parser.add_argument("--to", choices=list(TOOLS), required=True, help="the tool")
    parser.add_argument("--project", required=True, help="the project in the tool")
    given = parser.parse_args(arguments)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    parent, ended = os.getppid(), threading.Event()
    threading.Thread(target=wait_for_closing, args=(sys.stdin.fileno(), ended), daemon=True).start()
    following = Following(
        given.folder,
        partial(open_tracker, given.to),
        given.project,
        patience_seconds=float("inf"),  # the process that started this one says when the run is over
        # A process that the run forked may hold the other end open; a parent's id changes when the parent dies.
        is_abandoned=lambda: ended.is_set() or os.getppid() != parent,
    )
    try:
        follow_runs([following])
    except SeqfitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


class TrackerProcess:
    """The training process's side. A tool that is not installed is an error at once."""

    def __init__(self, folder: Path, tool: str, project: str, report: Callable[[str], None]) -> None:
        check_tool(tool)
        self._folder = folder
        self._tool = tool
        self._project = project
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None
        self._problems: list[str] = []  # become events of the run, when there is one
        # No pipe: one that nobody reads fills up and blocks the tracker. Closed in __exit__.
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Self:
        if (self._folder / files.MANIFEST).is_file():  # resumed, or another run, which training will refuse
            later = f"seqfit track {quote(self._folder)} --to {self._tool}"
            self._report(f"'{self._folder}' already exists and is not followed; send it afterwards with: {later}")
            return self
        command = [sys.executable, "-m", "seqfit.tracking.follower", str(self._folder), "--to", self._tool]
        with optional_work(EventKind.TRACKING, f"nothing is sent to {self._tool}", self._note):
            self._process = subprocess.Popen(  # in a session that Ctrl-C in the run's terminal does not reach
                [*command, "--project", self._project],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._printed,
                **own_session(),
            )
        return self

    def __exit__(self, *_error: object) -> None:
        with self._printed, optional_work(EventKind.TRACKING, "how the tracker ended is not known", self._note):
            if self._process is not None:
                self._finish(self._process)
        if (self._folder / files.MANIFEST).is_file():
            with optional_work(EventKind.TRACKING, "no event is written", lambda _, message: self._report(message)):
                for problem in self._problems:
                    RunWriter.add_event(self._folder, EventKind.TRACKING, problem)

    def _note(self, _kind: EventKind, message: str) -> None:
        self._report(message)
        self._problems.append(message)

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        if not (self._folder / files.MANIFEST).is_file():  # training ended before it began
            process.kill()
            process.communicate()
            return
        try:
            process.communicate(timeout=_FINISH_SECONDS)  # closes its standard input, the sign to end
        except subprocess.TimeoutExpired:
            late = f"process {process.pid} is still sending the run to {self._tool}; it ends by itself"
            self._note(EventKind.TRACKING, late)
            return
        if process.returncode != 0:
            self._printed.seek(0)
            lines = self._printed.read().decode("utf-8", "replace").strip().splitlines()
            ended = f"the tracker process {describe_exit(process.returncode)}"
            reason = lines[-1] if lines and process.returncode > 0 else ended  # a kill leaves no message
            self._note(EventKind.TRACKING, f"the run could not be sent to {self._tool}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
