"""A few steps of the training loop, for measurements: no evaluation, no checkpoint, records in a temporary folder.

    run_steps(setup, 7, after)      after(1, batch) .. after(7, batch)

Everything else is as in `seqfit train`, so that causes in the loop itself (waiting for data, reading values for the
log, what ranks agree on) are included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from seqfit.data import GlobalBatch
from seqfit.rundir import RunWriter
from seqfit.training.log import StepWork
from seqfit.training.loop import build_run, train_to_end
from seqfit.training.observer import Observer
from seqfit.training.setup import TrainingSetup
from seqfit.training.view import SilentView


def run_steps(
    setup: TrainingSetup, steps: int, after: Callable[[int, GlobalBatch], None] | None = None, *, done: int = 0
) -> None:
    """Runs so many steps behind the first `done`, and calls `after` with each one's number and batch."""
    last = done + steps
    evaluation = setup.recipe.eval.model_copy(update={"every_steps": last + 1, "at_start": False})
    # One more in all than are made: the last step of a run is followed by an evaluation.
    setup = replace(setup, recipe=setup.recipe.model_copy(update={"eval": evaluation}), total_steps=last + 1)
    with tempfile.TemporaryDirectory(prefix="seqfit-steps-") as folder:
        writer = RunWriter.create(Path(folder) / "run")
        with closing(writer):
            observers = [] if after is None else [_AfterStep(after)]
            run = build_run(setup, writer, SilentView(), StepWork(), observers, max_steps=steps)
            run.state.step = done
            train_to_end(run)


class _AfterStep(Observer):
    def __init__(self, after: Callable[[int, GlobalBatch], None]) -> None:
        self._after = after

    def after_step(self, number: int, batch: GlobalBatch) -> None:
        self._after(number, batch)
