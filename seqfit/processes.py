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
from types import FrameType, TracebackType
from typing import Self

import psutil

from seqfit.errors import describe_exit
from seqfit.system import own_session

_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0  # that killed processes are waited for


class ChildProcess:
    """One process; `env` is added to this process's environment."""

    def __init__(self, argv: Sequence[str], log: Path, *, env: Mapping[str, str]) -> None:
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(argv),
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                **own_session(),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

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
        """With all its descendants; nothing where it has ended by itself."""
        if self.poll() is None:
            kill_tree(self._process.pid)
            self._process.wait()

    def describe_exit(self) -> str:
        """'was killed by SIGSEGV (signal 11)', 'ended with exit code 1', 'is still running'."""
        code = self.poll()
        return "is still running" if code is None else describe_exit(code)


def read_last_lines(log: Path, count: int) -> list[str]:
    """Without empty lines."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    return [line.rstrip() for line in lines if line.strip()][-count:]


def kill_tree(pid: int) -> None:
    """SIGKILL to a process and all its descendants."""
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        kill_processes([top, *top.children(recursive=True)])


def kill_processes(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL to each, and wait until they have ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_KILL_SECONDS)


@contextmanager
def raise_on_signals(
    signals: Sequence[signal.Signals], error: Callable[[signal.Signals], BaseException]
) -> Iterator[None]:
    """Inside the block these signals raise; Python has no handlers in threads other than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise error(signal.Signals(number))

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
