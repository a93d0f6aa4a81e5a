"""Traces variants in this process and in a second one, because tracing is Python on one core and takes seconds.

In: a request, what traces a variant of it, and variants. Out: a step model for each. The second process takes variants
from the other end of the list:

    variants to trace    a b c d e f g
    this process         a b c d ->
    the second one             <- e f g        (it starts later: it has torch to import first)

They pass pickles through pipes. A ProcessPoolExecutor would have to spawn (torch has threads), which imports the
caller's main module in the worker: a script that calls seqfit.plan() outside of `if __name__ == "__main__"` would run
from its beginning a second time.
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
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from seqfit.errors import describe_error, describe_exit
from seqfit.planning.candidates import Variant
from seqfit.system import usable_cores

if TYPE_CHECKING:
    from seqfit.planning.placement import PlanRequest
    from seqfit.planning.step_model import StepModel

SERVE_TRACES = "from seqfit.planning.search import serve_traces; serve_traces()"  # what the second process runs
_LEAST_PATIENCE_SECONDS, _POLL_SECONDS = 10.0, 0.05
WORTH_IT = 4  # variants; with fewer, the second process would hardly have started


class Tracers:
    """Traces variants of one request; the second process runs the same `trace`."""

    def __init__(
        self,
        request: PlanRequest,
        trace: Callable[[PlanRequest, Variant], StepModel],
        *,
        second_process: bool,
        expected: int = 0,
    ) -> None:
        """`expected`: how many variants all calls of `trace` together may have."""
        self._request = request
        self._trace = trace
        self._may_start = second_process and usable_cores() > 1
        self._expected = expected
        self._second: subprocess.Popen[bytes] | None = None
        self._is_ready = threading.Event()  # it has imported torch and has the request
        self._has_ended = False
        self.events: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def trace(
        self, variants: Sequence[Variant], after_each: Callable[[Variant, StepModel], None]
    ) -> dict[Variant, StepModel]:
        waiting = deque(variants)
        done: dict[Variant, StepModel] = {}
        if self._may_start and self._second is None and max(len(variants), self._expected) >= WORTH_IT:
            self._start()
        thread = None
        if self._second is not None and len(variants) > 1:
            thread = threading.Thread(target=self._trace_in_second, args=(waiting, done), daemon=True)
            thread.start()
        longest_seconds = 0.0
        try:
            while waiting:
                variant, started = waiting.popleft(), time.monotonic()
                done[variant] = self._trace(self._request, variant)
                longest_seconds = max(longest_seconds, time.monotonic() - started)
                after_each(variant, done[variant])
        finally:
            waiting.clear()
            if thread is not None:
                self._wait_for(thread, longest_seconds)
        for variant in variants:  # what the second process started and did not finish
            if variant not in done:
                done[variant] = self._trace(self._request, variant)
        return {variant: done[variant] for variant in variants}

    def _wait_for(self, thread: threading.Thread, longest_seconds: float) -> None:
        """For what the second process has started, as long as a few traces take here; one that hangs is killed."""
        patience = _LEAST_PATIENCE_SECONDS + 3 * longest_seconds
        thread.join(patience)
        if thread.is_alive():
            self._end(f"did not respond within {patience:.0f} s and was killed")
            thread.join()

    def _trace_in_second(self, waiting: deque[Variant], done: dict[Variant, StepModel]) -> None:
        """Takes nothing before the process is ready: this one may have traced everything by then."""
        while not self._is_ready.wait(_POLL_SECONDS):
            if not waiting or self._has_ended:
                return
        second = self._second
        if second is None or second.stdin is None or second.stdout is None:
            return
        try:
            while waiting:
                variant = waiting.pop()
                pickle.dump(variant, second.stdin)
                second.stdin.flush()
                done[variant] = pickle.load(second.stdout)
        except IndexError:  # the list was used up in the meantime
            return
        except Exception as error:  # whatever comes out of a pipe from a process that fails
            self._end(f"failed: {self._find_cause(error)}")

    def _find_cause(self, error: Exception) -> str:
        """How the process ended, where it did: its pipe only says that it is closed."""
        try:
            code = None if self._second is None else self._second.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        return describe_error(error) if code in (None, 0) else f"it {describe_exit(int(code or 0))}"

    def _start(self) -> None:
        """The process, and a thread that waits until it has imported what it needs."""
        second = subprocess.Popen(
            [sys.executable, "-c", SERVE_TRACES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self._second = second

        def hand_over() -> None:
            assert second.stdin is not None
            assert second.stdout is not None
            try:
                pickle.dump(self._request, second.stdin)
                second.stdin.flush()
                pickle.load(second.stdout)
                self._is_ready.set()
            except Exception as error:
                self._end(f"failed: {self._find_cause(error)}")

        threading.Thread(target=hand_over, daemon=True).start()

    def _end(self, why: str = "") -> None:
        """Once; what goes wrong afterwards is because of that."""
        if why and not self._has_ended:
            self.events.append(f"the second tracing process {why}")
        self._has_ended, self._may_start = True, False
        second, self._second = self._second, None
        if second is not None:
            second.kill()
            second.wait()
            for pipe in (second.stdin, second.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what is left in a pipe that nobody reads
                        pipe.close()
