"""The training loop: next batch -> step -> on OOM split and retry -> log -> evaluate -> snapshot.

`run_training` reads top to bottom, and from it to `loss.backward()` are at most five frames, whatever the parallel
strategy (tests/training/test_frames.py):

    run_training > make_step > TrainStep.run > ParallelStrategy.run_batch > loss.backward()

Batches are prepared ahead of it, and records are read one step late: only an evaluation and the end leave the device
idle. What observes steps (peak memory, a calibration workload, a profiler) is an `Observer`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from seqfit.data import GlobalBatch
from seqfit.errors import is_out_of_memory
from seqfit.rundir import RunWriter, records
from seqfit.step import StepOutcome, TrainStep
from seqfit.training.evaluator import Evaluator
from seqfit.training.log import StepLog, StepWork
from seqfit.training.nonfinite import NonFiniteHandler
from seqfit.training.observer import Observer
from seqfit.training.oom import HalfUpdated, OomRecovery, free_memory
from seqfit.training.setup import TrainingSetup
from seqfit.training.snapshot_files import Snapshot
from seqfit.training.snapshots import Snapshots
from seqfit.training.state import Best, Schedule, TrainingState, read_torch_states, restore_torch_states
from seqfit.training.view import SilentView, TrainingView


@dataclass
class TrainingRun:
    setup: TrainingSetup
    writer: RunWriter
    view: TrainingView
    state: TrainingState
    log: StepLog
    evaluator: Evaluator
    snapshots: Snapshots
    oom: OomRecovery
    nonfinite: NonFiniteHandler
    observers: Sequence[Observer]
    max_steps: int | None = None  # of this process, without an evaluation at the end: a profile needs a few
    made: int = 0  # steps of this process

    @property
    def step(self) -> TrainStep:
        return self.setup.step

    def resume(self, snapshot: Snapshot | None, splits: Mapping[int, int]) -> None:
        """Continue from a snapshot, if there is one; `splits`: micro-batch sizes that OOM set after it."""
        if snapshot is not None:
            self.state.restore(snapshot)
        self.oom.expect(splits)

    def batches(self) -> Generator[GlobalBatch]:
        done = self.state.step
        on_gpu = self.step.precision.device.type == "cuda"
        return self.setup.loader.prefetch(done, self.setup.total_steps - done, self.setup.strategy.prefetch, pin=on_gpu)

    def set_learning_rate(self, number: int) -> float | None:
        """The rate of this step; None where Adafactor's relative steps set their own."""
        rate = self.setup.recipe.train.learning_rate * self.state.schedule.factor(number)
        self.step.set_learning_rate(rate)
        return None if self.step.optimizer.param_groups[0]["lr"] is None else rate

    @contextmanager
    def observed(self, number: int, batch: GlobalBatch) -> Iterator[None]:
        with ExitStack() as stack:
            for observer in self.observers:
                stack.enter_context(observer.around_step(number, batch))
            yield

    def is_evaluation_due(self, number: int, batch: GlobalBatch) -> bool:
        every = self.setup.recipe.eval.every_steps
        due = batch.epoch.is_integer() if every is None else number % every == 0
        return due or number == self.setup.total_steps

    def is_finished(self) -> bool:
        """Whether this was the last step. After a signal, takes a snapshot and raises."""
        if self.made == self.max_steps:
            return True
        done = self.state.step == self.setup.total_steps
        stopping = self.setup.coordination.stopping
        if stopping.requested and (not done or self.state.evaluation_is_due):
            self.snapshots.take()
            self.snapshots.wait()
            self.setup.world.barrier()  # no rank exits while the first one writes: the launcher would stop them all
            stopping.raise_stopped(self.state.step, self.writer.path)
        early, stale = self.setup.recipe.eval.early_stopping, self.state.best.stale
        stalled = early is not None and stale >= early.patience
        if stalled and not done:
            self.writer.event(records.EarlyStoppingEvent(self.state.step, stale))
        return stalled or done

    def keep_something(self) -> bool:
        """Save the current model where there is no checkpoint yet; returns whether that was needed.

        Several processes do so only if all know that they stop: one that is interrupted twice exits at once.
        """
        world = self.setup.world
        if world.size > 1 and not self.setup.coordination.stopping.requested:
            return False
        if world.broadcast(self.evaluator.checkpoint.is_dir()):
            return False
        self.evaluator.save()
        world.barrier()
        return True


def build_run(
    setup: TrainingSetup,
    writer: RunWriter,
    view: TrainingView,
    work: StepWork,
    observers: Sequence[Observer] = (),
    max_steps: int | None = None,
) -> TrainingRun:
    train, early = setup.recipe.train, setup.recipe.eval.early_stopping
    nonfinite = NonFiniteHandler(setup.step, setup.loader, setup.world, train.when_not_finite, writer)
    calibrations = [observer.measure_between_steps for observer in observers]
    log = StepLog(writer, view, setup.step.clock, work, nonfinite.check, calibrations)
    state = TrainingState(
        setup,
        Best(setup.best, early.min_delta if early is not None else 0.0),
        Schedule(train.schedule, setup.total_steps),
        log,
        nonfinite,
        generator=setup.generator,
        evaluation_is_due=setup.recipe.eval.at_start,
    )
    return TrainingRun(
        setup,
        writer,
        view,
        state,
        log,
        Evaluator(state, writer, view),
        Snapshots(state, writer),
        OomRecovery(setup.step, setup.loader, writer, setup.coordination),
        nonfinite,
        observers,
        max_steps,
    )


def train_to_end(run: TrainingRun) -> int:
    """Train until the budget is used, early stopping or a signal; returns the number of steps."""
    with closing(run.snapshots):
        while True:
            try:
                run_training(run)
                return run.state.step
            except HalfUpdated:
                run.snapshots.go_back()


def run_training(run: TrainingRun) -> None:
    state, step = run.state, run.step
    if step.updates_in_backward and state.step == 0:
        run.snapshots.take()  # to go back to after OOM
    if state.evaluation_is_due:
        run.evaluator.evaluate()
    step.model.train()
    with closing(run.batches()) as batches, run.log:
        while not run.is_finished():
            with step.clock.phase("data_wait"):
                batch = next(batches)
            number = state.step + 1
            rate = run.set_learning_rate(number)
            with run.observed(number, batch):
                outcome, batch = make_step(run, number, batch)
            state.step, state.is_best = number, False
            run.made += 1
            run.log.write()  # of the step before: the device is busy with this one
            run.log.observe(outcome, batch)
            for observer in run.observers:
                observer.after_step(number, batch)
            run.view.advance(number)
            if number % run.setup.recipe.train.log_every == 0 or number == run.setup.total_steps:
                run.log.read(number, batch, outcome, rate)
            if run.is_evaluation_due(number, batch):
                run.evaluator.evaluate()
            run.snapshots.take_if_due()


def make_step(run: TrainingRun, number: int, batch: GlobalBatch) -> tuple[StepOutcome, GlobalBatch]:
    """One update with a global batch: in smaller micro-batches after OOM, in fp32 after NaN or Inf.

    Returns the batch as it was finally split.
    """
    device = run.step.precision.device
    run.oom.begin(number)
    batch = run.setup.loader.split_again(batch)  # it may have been prepared before micro-batches became smaller
    rng = read_torch_states(device)
    while True:
        try:
            outcome = run.step.run(batch)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # The error is gone here, and with it the frames that held activations.
        free_memory()
        batch = run.oom.halve(number, batch)
        restore_torch_states(rng, device)
    if run.nonfinite.should_retry(number, outcome):
        restore_torch_states(rng, device)
        with run.step.full_precision():
            return make_step(run, number, batch)
    return outcome, batch


def run_steps(
    setup: TrainingSetup, steps: int, after: Callable[[int, GlobalBatch], None] | None = None, *, done: int = 0
) -> None:
    """Runs so many steps behind the first `done`, and calls `after` with each one's number and batch.

    No evaluation, no checkpoint, records in a temporary folder; else as in `seqfit train`, so that causes in the loop
    itself (waiting for data, reading values for the log, what ranks agree on) are included.
    """
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
