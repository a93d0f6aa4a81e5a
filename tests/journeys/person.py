"""Somebody at a terminal: a home, a working folder, the installed command, and nothing else.

    person = Person(folder, bin)
    person.types("seqfit train demo --out runs/demo")      waits, and fails the test unless the exit code is 0
    with person.starts("seqfit report runs --watch") as going: going.wait_for("http://"); going.interrupt()

Each command line goes to a new bash with a few variables that everybody has; none is there that only a test would set.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import end_tree

_EVERYBODYS = ("LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR")
_NEVER_SHOWN = ("Traceback (most recent call last)", "USDT:", "Segmentation fault", "resource_tracker")
PATIENCE_SECONDS = 1500.0  # of one command on a busy machine; on a quiet one none takes three minutes


@dataclass(frozen=True)
class Printed:
    """How a command ended, and what it printed to both streams."""

    command: str
    exit_code: int
    text: str

    def __str__(self) -> str:
        return f"$ {self.command}\n(exit code {self.exit_code})\n{self.text[-6000:]}"


class Person:
    """Types commands in a folder."""

    def __init__(self, folder: Path, programs: Path, more: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.home = folder.parent / f"{folder.name}-home"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(exist_ok=True)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        usual = {name: os.environ[name] for name in _EVERYBODYS if name in os.environ}
        self.environment = usual | {"PATH": path, "HOME": str(self.home)} | dict(more or {})

    def types(self, command: str, *, exit_code: int = 0) -> Printed:
        """Run a command to its end."""
        with self.starts(command) as going:
            printed = going.wait()
        assert printed.exit_code == exit_code, f"{printed}\n(exit code {exit_code} was expected)"
        check_readable(printed)
        return printed

    @contextmanager
    def starts(self, command: str) -> Iterator[Going]:
        """Start a command that is looked at while it runs; it is ended with the block."""
        log = self.folder.parent / f"{self.folder.name}-{time.monotonic_ns()}.log"
        with (
            open(log, "wb") as sink,
            subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_default_signals,
            ) as process,
        ):
            try:
                yield Going(command, process, log)
            finally:
                if process.poll() is None:
                    end_tree(process.pid)


class Going:
    """A command that runs."""

    def __init__(self, command: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.command = command
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self._log.read_text("utf-8", errors="replace")

    def wait_for(self, pattern: str) -> str:
        """Until it has printed something that matches."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := re.search(pattern, self.text)) is None:
            code = self.process.poll()
            assert code is None or re.search(pattern, self.text), f"{Printed(self.command, code or 0, self.text)}"
            assert time.monotonic() < deadline, f"no {pattern!r} yet: {self.text[-6000:]}"
            time.sleep(0.05)
        return found.group()

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """As the terminal's Ctrl-C does: to the whole group."""
        os.killpg(self.process.pid, number)

    def wait(self) -> Printed:
        """Until it ends."""
        try:
            code = self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"not over after {PATIENCE_SECONDS:.0f} s: $ {self.command}\n{self.text[-6000:]}"
            ) from None
        return Printed(self.command, code, self.text)


def check_readable(printed: Printed) -> None:
    """Nothing that only we could make sense of."""
    for noise in _NEVER_SHOWN:
        assert noise not in printed.text, f"{printed}\n({noise!r} was printed)"


def _default_signals() -> None:
    """A suite that was started in the background ignores SIGINT, and so would its children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)


def find_programs() -> Path:
    """The folder of the environment's own commands."""
    return Path(sys.executable).parent
