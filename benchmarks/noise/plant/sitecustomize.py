"""Makes the steps of one candidate slower, from outside: nothing in seqfit knows about it.

Python imports a module of this name before any program, and the benchmark's PYTHONPATH leads to this one. It acts only
in the process that trains the candidate `slowed`, recognised by the run directory on the command line:

    python -m seqfit train ... --out COMPARISON/runs/slowed-seed0-repeat3
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

SHARE = 0.05  # of a step
MakeStep = Callable[[Any, Any], Any]


def slow_down(make_step: MakeStep, share: float, clock: Callable[[], float] = time.perf_counter) -> MakeStep:
    """The same step, which then keeps its core busy for a share of the time since the previous step."""
    ended: float | None = None

    def slowed(step: Any, batch: Any) -> Any:
        nonlocal ended
        started = clock() if ended is None else ended
        outcome = make_step(step, batch)
        until = clock() + share * (clock() - started)
        while clock() < until:
            pass
        ended = clock()
        return outcome

    return slowed


def is_planted(argv: Sequence[str]) -> bool:
    """Whether this command line is that of a trial to slow down."""
    return list(argv[1:4]) == ["-m", "seqfit", "train"] and any("/runs/slowed-" in argument for argument in argv)


if is_planted(sys.orig_argv):
    from seqfit.step.step import TrainStep

    TrainStep.run = slow_down(TrainStep.run, SHARE)  # type: ignore[method-assign]
