"""The training loop: steps, records, evaluations, the best checkpoint, snapshots, stopping.

Batches are prepared ahead of it, and records are read one step late: where it waits for the device, in a record, the
device has the next step to work on. Only an evaluation and the end make it idle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from itertools import islice

from seqfit.data.loader import GlobalBatch, prefetch
from seqfit.rundir.events import EarlyStoppingEvent
from seqfit.rundir.writer import RunWriter
from seqfit.step.optimizers import Schedule, set_learning_rate
from seqfit.training.coordination import Coordination
from seqfit.training.evaluator import Evaluator
from seqfit.training.log import StepLog, StepWork
from seqfit.training.nonfinite import NonFiniteHandler
from seqfit.training.oom import HalfUpdated, OomRecovery
from seqfit.training.peak import PeakWatch, build_calibration_workload
from seqfit.training.setup import TrainingSetup
from seqfit.training.snapshot_files import Snapshot
from seqfit.training.snapshots import Snapshots
from seqfit.training.state import Best, TrainingState
from seqfit.training.stopping import Stopping
from seqfit.training.view import TrainingView


class TrainingLoop:
    """Runs the steps of one run. All it leaves behind is in the run directory."""

    def __init__(
        self,
        job: TrainingSetup,
        writer: RunWriter,
        view: TrainingView,
        work: StepWork,
        stopping: Stopping,
        *,
        watches_peak: bool = True,
    ) -> None:
        self._job = job
        self._recipe = job.recipe
        self._step = job.step
        is_predicted = job.forecast.predicted_peak_bytes is not None
        self.peak = PeakWatch(job.step, writer.event, is_predicted=is_predicted, watches=watches_peak)
        self.made = 0  # steps, by this process
        self._writer = writer
        self._view = view
        self._clock = job.step.clock
        numbers = NonFiniteHandler(job.step, job.loader, job.recipe.train.when_not_finite, writer)
        yardstick = build_calibration_workload(self._clock.device, job.step.way.world.size)
        self._log = StepLog(writer, view, self._clock, work, numbers.judge, yardstick)
        early = job.recipe.eval.early_stopping
        best = Best(job.best, early.min_delta if early is not None else 0.0)
        schedule = Schedule(job.recipe.train.schedule, job.total_steps)
        self._progress = TrainingState(
            job,
            best,
            schedule,
            self._log,
            numbers,
            answerer=job.answerer,
            evaluation_is_due=job.recipe.eval.at_start,
        )
        self._judge = Evaluator(self._progress, writer, view, stopping)
        agreement = Coordination(job.step.way.world, stopping)
        self._snapshots = Snapshots(self._progress, writer, agreement)
        self._recovery = OomRecovery(self.peak, job.step, job.loader, numbers, writer, agreement)
        self._stopping = stopping

    def resume(self, snapshot: Snapshot | None, cuts: Mapping[int, int]) -> None:
        """Go on from a snapshot instead of from the beginning; `cuts`: where micro-batches became smaller after it."""
        if snapshot is not None:
            self._progress.restore(snapshot)
        self._recovery.expect(cuts)

    def run(self) -> int:
        """Train until the budget is used, nothing improves any more or a signal comes; returns the steps made."""
        with contextlib.closing(self._snapshots):
            while True:
                try:
                    self._run_on()
                    return self._progress.step
                except HalfUpdated:
                    self._snapshots.go_back()

    def _run_on(self) -> None:
        """From the step that was made last to the end."""
        if self._step.updates_in_backward and self._progress.step == 0:
            self._snapshots.take()  # what an out-of-memory goes back to
        if self._progress.evaluation_is_due:
            self._judge.evaluate()
        self._step.model.train()
        with contextlib.closing(self._batches()) as batches, self._log:
            while not self._is_over():
                for batch in self._clock.each("data_wait", islice(batches, 1)):
                    self._make_step(batch)

    def _make_step(self, batch: GlobalBatch) -> None:
        number = self._progress.step + 1
        rate = self._set_learning_rate(number)
        outcome, batch = self._recovery.make_step(number, batch)
        self._progress.step, self._progress.is_best = number, False
        self.made += 1
        self._log.write()  # of the step before: the device is busy with this one
        self._log.observe(outcome, batch)
        self._view.advance(number)
        last = number == self._job.total_steps
        if number % self._recipe.train.log_every == 0 or last:
            self._log.read(number, batch, outcome, rate)
        if last or self._is_evaluation_due(number, batch):
            self._judge.evaluate()
        self._snapshots.take_if_due()

    def _is_over(self) -> bool:
        """Whether no further step is to be made. A signal is one reason; then there is a snapshot to go on from."""
        done = self._progress.step == self._job.total_steps
        if self._stopping.requested and (not done or self._progress.evaluation_is_due):
            self._stop()
        early = self._recipe.eval.early_stopping
        stalled = early is not None and self._progress.best.stale >= early.patience
        if stalled and not done:
            stale = self._progress.best.stale
            self._writer.event(EarlyStoppingEvent(self._progress.step, stale))
        return stalled or done

    def _stop(self) -> None:
        self._snapshots.take()
        self._snapshots.wait()
        self._step.way.world.barrier()  # nobody leaves, and is seen to leave, while the first one writes
        self._stopping.raise_stopped(self._progress.step, self._writer.path)

    def _batches(self) -> Generator[GlobalBatch]:
        done = self._progress.step
        batches = islice(self._job.loader.iterate(done), self._job.total_steps - done)
        return prefetch(batches, self._job.strategy.prefetch, pin=self._step.precision.device.type == "cuda")

    def _set_learning_rate(self, number: int) -> float | None:
        """The rate of this step; None where Adafactor's relative steps set their own."""
        rate = self._recipe.train.learning_rate * self._progress.schedule.factor(number)
        set_learning_rate(self._step.optimizer, rate)
        return None if self._step.optimizer.param_groups[0]["lr"] is None else rate

    def _is_evaluation_due(self, number: int, batch: GlobalBatch) -> bool:
        every = self._recipe.eval.every_steps
        return batch.epoch.is_integer() if every is None else number % every == 0

    def keep_something(self) -> bool:
        """Keep the model as it is now where there is no checkpoint yet; whether that was needed.

        Of several processes only if all know that they stop: one that is interrupted twice leaves at once.
        """
        if self._step.way.world.size > 1 and not self._stopping.requested:
            return False
        if self._step.way.world.broadcast(self._judge.checkpoint.is_dir()):
            return False
        self._judge.save()
        self._step.way.world.barrier()
        return True
