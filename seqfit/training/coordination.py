"""Signals that stop a run, and what its ranks agree on once per step, in one small all-reduce between their hosts.

    Ctrl-C             exit code 130; a second one stops at once, without a snapshot
    SIGTERM, SIGUSR1   exit code 75 ("try again later"): what Slurm sends before it preempts a job

A run that is stopped finishes its step, takes a snapshot and exits with the signal's code. nohup ignores SIGHUP, and a
script that starts a command with `&` ignores SIGINT and SIGQUIT: what was ignored when the process started stays
ignored, so that neither a closed terminal nor a Ctrl-C that was meant for others ends it.

A handler only notes the signal; the loop checks `stopping.requested` between steps. One rank may have got a signal and
the others not, so all ranks share what they noted (`offer`, `settle`), and stop together:

    rank 0   fine               no signal   a snapshot is due by its clock
    rank 1   3,072 tokens fit   SIGTERM
    agreed   3,072 tokens       SIGTERM     a snapshot is due

A single process looks at its own state whenever it needs to know. No torch here: launchers use `select_handled`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from seqfit.errors import Stopped, format_error
from seqfit.rundir import files
from seqfit.system import known_signals

if TYPE_CHECKING:
    from seqfit.parallel import World

NO_OOM = 2**62  # of tokens: no rank is out of memory
_STOPPING = known_signals("SIGINT", "SIGTERM", "SIGUSR1")
_FROM_TERMINAL = known_signals("SIGINT", "SIGHUP", "SIGQUIT")


def select_handled(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Those that may get a handler: signals of a terminal only if they are not ignored."""
    return [n for n in numbers if n not in _FROM_TERMINAL or signal.getsignal(n) is not signal.SIG_IGN]


class Stopping:
    """Notes signals while it is entered; outside the main thread there are none."""

    def __init__(self, *, single_process: bool = True) -> None:
        self._is_single = single_process
        self._noted: signal.Signals | None = None
        self._agreed: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._interrupts = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in select_handled(_STOPPING)}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def signal(self) -> signal.Signals | None:
        """The one that all ranks know of."""
        return self._noted if self._is_single else self._agreed

    @property
    def requested(self) -> bool:
        return self.signal is not None

    @property
    def noted(self) -> bool:
        return self._noted is not None

    def offer(self) -> int:
        """This rank's signal for an all-reduce (MIN): negative, or 0 without one."""
        return -int(self._noted or 0)

    def settle(self, lowest: int) -> None:
        self._agreed = signal.Signals(-lowest) if lowest else None

    def raise_stopped(self, step: int, run: Path) -> NoReturn:
        name = "no signal" if self.signal is None else self.signal.name
        parts = (
            f"{'Ctrl-C' if self.signal is signal.SIGINT else name} was received after step {step}",
            "a run that is stopped finishes its step and takes a snapshot",
            f"To resume, {files.describe_resume(run)}",
        )
        if self.signal is signal.SIGINT:
            raise KeyboardInterrupt(format_error(*parts))
        raise Stopped(*parts)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt  # the second one: at once
        self._noted = self._noted or signal.Signals(number)  # the first one sets the exit code


class PeerOutOfMemory(MemoryError):
    """Another rank is out of memory in this step: this rank gives it up, too."""


class Coordination:
    def __init__(self, world: World, stopping: Stopping | None = None) -> None:
        self.world = world
        self.stopping = stopping or Stopping(single_process=world.size == 1)
        self.has_agreed = False  # in this attempt at a step: the others count on this rank
        self.lowest_tokens = NO_OOM
        self._agreed_due = False
        self.is_due_by_clock: Callable[[], bool] = bool  # a snapshot; among several ranks the first one's clock decides

    @property
    def snapshot_is_due(self) -> bool:
        """By the clock, the same on all ranks."""
        return self.is_due_by_clock() if self.world.size == 1 else self._agreed_due

    def begin_attempt(self) -> None:
        self.has_agreed, self.lowest_tokens = False, NO_OOM

    def check_all_ranks(self) -> None:
        """Before the first collective of a step: raises where a rank is out of memory."""
        self.has_agreed = True
        self.lowest_tokens = self.all_reduce()
        if self.lowest_tokens != NO_OOM:
            raise PeerOutOfMemory

    def all_reduce(self, tokens: int = NO_OOM) -> int:
        """The smallest micro-batch that any rank needs after OOM, or NO_OOM. A collective: all ranks call it."""
        is_due = self.world.is_first and self.is_due_by_clock()
        lowest, stop, due = self.world.all_reduce_min([tokens, self.stopping.offer(), -int(is_due)])
        self.stopping.settle(stop)
        self._agreed_due = due < 0
        return lowest
