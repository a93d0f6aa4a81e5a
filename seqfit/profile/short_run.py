"""A few steps of the real training loop, watched, and ended before it evaluates or saves anything.

In: a job, and what to do after each step. Out: nothing but what the watcher saw; the records of the steps go into a
temporary run directory that is removed. It is the loop that `seqfit train` runs, so a cause that sits in the loop
itself (waiting for data, reading values for the log) is there as well.

    steps     1   2   3   4   5   6   7
              warm-up | measured: between after(2) and after(7)

Evaluations are kept out, for one may take longer than all the steps; they are measured by themselves. So is the watch
over a step's peak: it slows the steps down that are timed here, and needs torch's profiler, which `capture` has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqfit.rundir.writer import RunWriter
from seqfit.train.job import Job
from seqfit.train.loop import TrainingLoop
from seqfit.train.stopping import Stopping
from seqfit.train.view import Silent
from seqfit.train.work import Work

_NEVER = 10**9  # steps


class _Enough(Exception):
    """Raised inside the loop by the watcher: the steps that were asked for are made."""


class _Watcher(Silent):
    def __init__(self, steps: int, after: Callable[[int], None]) -> None:
        self._steps = steps
        self._after = after

    def advance(self, step: int) -> None:
        """A step is launched."""
        self._after(step)
        if step == self._steps:
            raise _Enough


def run_steps(job: Job, steps: int, after: Callable[[int], None]) -> None:
    """Make so many steps, and call `after` with each one's number, from 1."""
    recipe = job.recipe
    evaluation = recipe.eval.model_copy(update={"every_steps": _NEVER, "at_start": False})
    job = replace(job, recipe=recipe.model_copy(update={"eval": evaluation}), total_steps=_NEVER)
    with tempfile.TemporaryDirectory(prefix="seqfit-profile-") as folder:
        writer = RunWriter.create(Path(folder) / "run")
        try:
            TrainingLoop(job, writer, _Watcher(steps, after), Work(), Stopping(), watches_peak=False).run()
        except _Enough:
            pass
        finally:
            writer.close()
