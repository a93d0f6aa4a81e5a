"""Signals that ask a run to stop: it finishes its step, takes a snapshot and ends with a code that says so.

    Ctrl-C             exit code 130; a second one stops at once, without a snapshot
    SIGTERM, SIGUSR1   exit code 75 ("try again later"): what Slurm sends before it takes the machine away

nohup ignores SIGHUP, and a script that starts a command with `&` ignores SIGINT and SIGQUIT: what was ignored when the
process started stays ignored, so that neither a closed terminal nor a Ctrl-C that was meant for others ends it.

A handler only notes the signal. Who trains asks `stopping.requested` between steps. Of several processes one may have a
signal and the others not: what each has noted is exchanged once a step (`offer`, `settle`), and all stop together.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from seqfit.errors import Stopped, format_error
from seqfit.rundir.atomic import describe_resume
from seqfit.system import known_signals

_ASKED = known_signals("SIGINT", "SIGTERM", "SIGUSR1")
_OF_TERMINALS = known_signals("SIGINT", "SIGHUP", "SIGQUIT")


def select_handled(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Those that may have a handler: the signals of a terminal only if they are not ignored."""
    return [n for n in numbers if n not in _OF_TERMINALS or signal.getsignal(n) is not signal.SIG_IGN]


class Stopping:
    """Notes signals while it is entered. In a thread other than the main one there are none to note."""

    def __init__(self, *, alone: bool = True) -> None:
        self._alone = alone
        self._noted: signal.Signals | None = None
        self._agreed: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._interrupts = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in select_handled(_ASKED)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def signal(self) -> signal.Signals | None:
        """That all processes know of."""
        return self._noted if self._alone else self._agreed

    @property
    def requested(self) -> bool:
        """Whether to stop at the next good moment."""
        return self.signal is not None

    @property
    def noted(self) -> bool:
        """Whether this process has a signal."""
        return self._noted is not None

    def offer(self) -> int:
        """What this process has to say about it: the lowest of all counts."""
        return -int(self._noted or 0)

    def settle(self, lowest: int) -> None:
        """What was agreed."""
        self._agreed = signal.Signals(-lowest) if lowest else None

    def raise_stopped(self, step: int, run: Path) -> NoReturn:
        """End the run with the signal's own code."""
        name = "no signal" if self.signal is None else self.signal.name
        message = format_error(
            f"{'Ctrl-C' if self.signal is signal.SIGINT else name} came after step {step}",
            "a run that is asked to stop finishes its step and takes a snapshot",
            f"To resume, {describe_resume(run)}",
        )
        if self.signal is signal.SIGINT:
            raise KeyboardInterrupt(message)
        raise Stopped(message)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt  # the second time: at once
        self._noted = self._noted or signal.Signals(number)  # the first decides over the exit code
