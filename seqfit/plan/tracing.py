"""Traces of several variants at a time: some in this process, some in one beside it.

Tracing is Python's work, one core's, and takes seconds for a model of many layers; so a search with many variants has a
second process take them from the other end of the list.

    variants to trace    a b c d e f g
    here                 a b c d ->
    beside                     <- e f g        (it begins later, for it has torch to import first)

The other process is given what it needs by pickle through its standard input, as its answers come back: both ends are
this program.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from seqfit.errors import describe_error, describe_exit
from seqfit.system import usable_cores

_LEAST_PATIENCE_SECONDS = 10.0
WORTH_IT = 4  # variants; with fewer, the other process would hardly have begun

Q = TypeVar("Q")
V = TypeVar("V")
M = TypeVar("M")


class Tracers(Generic[Q, V, M]):
    """Traces variants of one question; `trace` is what the other process does, too."""

    def __init__(self, question: Q, trace: Callable[[Q, V], M], *, beside: bool) -> None:
        self._question = question
        self._trace = trace
        self._may_start = beside and usable_cores() > 1
        self._beside: subprocess.Popen[bytes] | None = None
        self._said = False  # that it hangs
        self.events: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def trace(self, variants: Sequence[V], tell: Callable[[], None]) -> dict[V, M]:
        """All of them; `tell` is called as each is done."""
        waiting, done = deque(variants), dict[V, M]()
        thread = None
        if self._may_start and len(variants) >= WORTH_IT:
            thread = threading.Thread(target=self._trace_beside, args=(waiting, done), daemon=True)
            thread.start()
        longest_seconds = 0.0
        try:
            while waiting:
                variant, started = waiting.popleft(), time.monotonic()
                done[variant] = self._trace(self._question, variant)
                longest_seconds = max(longest_seconds, time.monotonic() - started)
                tell()
        finally:
            waiting.clear()
            if thread is not None:
                self._wait_for(thread, longest_seconds)
        for variant in variants:  # what the other process began and did not bring to an end
            if variant not in done:
                done[variant] = self._trace(self._question, variant)
        return {variant: done[variant] for variant in variants}

    def _wait_for(self, thread: threading.Thread, longest_seconds: float) -> None:
        """For what the other process has begun, as long as a few traces take here: one that hangs is ended."""
        patience = _LEAST_PATIENCE_SECONDS + 3 * longest_seconds
        thread.join(patience)
        if thread.is_alive():
            self.events.append(f"a second process that traces did not answer within {patience:.0f} s and was killed")
            self._said = True
            self._end()
            thread.join()

    def _trace_beside(self, waiting: deque[V], done: dict[V, M]) -> None:
        try:
            beside = self._start()
            assert beside.stdin is not None
            assert beside.stdout is not None
            while waiting:
                variant = waiting.pop()
                pickle.dump(variant, beside.stdin)
                beside.stdin.flush()
                done[variant] = pickle.load(beside.stdout)
        except IndexError:  # the list was used up in the meantime
            return
        except Exception as error:  # whatever comes out of a pipe from a process that fails
            if not self._said:
                self.events.append(f"a second process that traces could not go on: {self._find_cause(error)}")

    def _find_cause(self, error: Exception) -> str:
        """How the process ended, where it did: its pipe only says that it is closed."""
        try:
            code = None if self._beside is None else self._beside.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        return describe_error(error) if code in (None, 0) else f"it {describe_exit(int(code or 0))}"

    def _start(self) -> subprocess.Popen[bytes]:
        if self._beside is None:
            self._beside = subprocess.Popen(
                [sys.executable, "-m", "seqfit.plan.trace_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            assert self._beside.stdin is not None
            pickle.dump(self._question, self._beside.stdin)
        return self._beside

    def _end(self) -> None:
        """Whatever it is doing: nobody waits for it."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.kill()
            beside.communicate()
