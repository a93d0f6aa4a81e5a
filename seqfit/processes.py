"""Child processes: started with a log file, watched, and killed with everything they have started.

    with ChildProcess([sys.executable, "-m", "seqfit", "train", "r.yaml"], log, env={"OMP_NUM_THREADS": "2"}) as child:
        code = child.wait(lambda: draw(read_last_step(run)))      # the callback runs about once a second
    read_last_lines(log, 1), child.describe_exit()                # ['ValueError: ...'], 'ended with exit code 1'

A child reads nothing, prints to its log, and has a session of its own: Ctrl-C in the terminal reaches only the parent,
which then leaves the `with` block. At the end of the block, for whatever reason, a child that still runs is killed with
all its descendants. `raise_on_signals` turns SIGTERM and its like into an exception, so that the block is left then,
too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Self

import psutil

from seqfit.errors import describe_exit
from seqfit.system import own_session

_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0  # that killed processes are waited for


class ChildProcess:
    """One process; `env` is added to this process's environment."""

    def __init__(self, argv: Sequence[str], log: Path, *, env: Mapping[str, str]) -> None:
        options = {"env": os.environ | env, "stdin": subprocess.DEVNULL, **own_session()}
        with log.open("wb") as output, _held_signals() as held:
            self._process = subprocess.Popen(list(argv), stdout=output, stderr=output, **options)
        if held:
            self.kill()
            raise held[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code; None while it runs, -9 after SIGKILL."""
        return self._process.poll()

    def wait(self, tick: Callable[[], None] = lambda: None, *, tick_seconds: float = 1.0) -> int:
        """The exit code, once it has ended; `tick` is called at once and every `tick_seconds` until then."""
        due = time.monotonic()
        while (code := self.poll()) is None:
            if time.monotonic() >= due:
                tick()
                due = time.monotonic() + tick_seconds
            time.sleep(_POLL_SECONDS)
        return code

    def kill(self) -> None:
        """With all its descendants; nothing if it has ended by itself."""
        if self.poll() is not None:
            return
        descendants: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            descendants = psutil.Process(self.pid).children(recursive=True)
        self._process.kill()
        kill_processes(descendants)  # not the child itself: psutil would take its exit code
        self._process.wait()

    def describe_exit(self) -> str:
        code = self.poll()
        return "is still running" if code is None else describe_exit(code)


def read_last_lines(log: Path, count: int) -> list[str]:
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return [line.rstrip() for line in lines if line.strip()][-count:]


def kill_processes(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_KILL_SECONDS)


_held: list[BaseException] | None = None  # while a child is being started


@contextmanager
def _held_signals() -> Iterator[list[BaseException]]:
    """Errors of signals that arrived in the block: raised inside Popen, they would leave a child without an owner."""
    global _held
    errors: list[BaseException] = []
    if threading.current_thread() is threading.main_thread():
        _held = errors
    try:
        yield errors
    finally:
        _held = None if _held is errors else _held


@contextmanager
def raise_on_signals(
    signals: Sequence[signal.Signals], error: Callable[[signal.Signals], BaseException]
) -> Iterator[None]:
    """Inside the block these signals raise; Python has no handlers in threads other than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        if _held is None:
            raise error(signal.Signals(number))
        _held.append(error(signal.Signals(number)))

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
