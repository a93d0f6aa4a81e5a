"""The training loop: steps, records, evaluations, the best checkpoint, early stopping.

Batches are prepared ahead of it, and records are read one step late: where it waits for the device, in a record, the
device has the next step to work on. Only an evaluation and the end make it idle.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seqfit.data.loader import GlobalBatch
from seqfit.data.prefetch import prefetch
from seqfit.data.tokenize import TokenizedSplit
from seqfit.errors import TrainingFailed
from seqfit.evaluate.score import SplitScores, score_split
from seqfit.metrics import higher_is_better
from seqfit.model.folder import Teaching, save_checkpoint
from seqfit.rundir import files
from seqfit.rundir.records import EvaluationRecord
from seqfit.rundir.writer import RunWriter
from seqfit.step.optimizers import set_learning_rate
from seqfit.train.job import Job
from seqfit.train.peak import PeakWatch
from seqfit.train.schedules import Schedule
from seqfit.train.step_log import StepLog, explain_nan
from seqfit.train.view import View
from seqfit.train.work import Work


@dataclass
class Best:
    """The best score so far, and for how many evaluations nothing has beaten it."""

    name: str
    min_delta: float
    value: float | None = None
    mark: float | None = None  # what an improvement has to beat by min_delta
    loss: float = math.inf
    stale: int = 0

    def judge(self, value: float | None, loss: float | None) -> tuple[bool, bool]:
        """Whether to keep this model, and whether it is an improvement. Of equal scores the lower loss is kept."""
        loss = math.inf if loss is None else loss
        if value is None or self.value is None or self.mark is None:
            improved = kept = self.value is None
        else:
            sign = 1 if higher_is_better(self.name) else -1
            improved = sign * (value - self.mark) > self.min_delta
            kept = sign * (value - self.value) > 0 or (value == self.value and loss < self.loss)
        if kept:
            self.value, self.loss = value, loss
        if improved:
            self.mark, self.stale = value, 0
        else:
            self.stale += 1
        return kept, improved


class TrainingLoop:
    """Runs the steps of one run. All it leaves behind is in the run directory."""

    def __init__(self, job: Job, writer: RunWriter, view: View, work: Work) -> None:
        self._job = job
        self._recipe = job.recipe
        self._step = job.step
        self.peak = PeakWatch(job.step, is_wanted=job.forecast.predicted_peak_bytes is not None)
        self._schedule = Schedule(job.recipe.train.schedule, job.total_steps)
        self._writer = writer
        self._view = view
        self._clock = job.step.clock
        self._log = StepLog(writer, view, job.step.precision, self._clock, work)
        stopping = job.recipe.eval.early_stopping
        self._best = Best(job.best, stopping.min_delta if stopping is not None else 0.0)
        self._number = 0

    def run(self) -> int:
        """Train until the budget is used or nothing improves any more; returns the number of steps made."""
        if self._recipe.eval.at_start:
            self._evaluate(0)
        self._step.model.train()
        with contextlib.closing(self._batches()) as batches, self._log:
            for number, batch in enumerate(self._clock.each("data_wait", batches), 1):
                self._number = number
                rate = self._set_learning_rate(number)
                outcome = self.peak(number, batch)
                self._log.write()  # of the step before: the device is busy with this one
                self._log.observe(outcome, batch)
                self._view.advance(number)
                last = number == self._job.total_steps
                if number % self._recipe.train.log_every == 0 or last:
                    self._log.read(number, batch, outcome, rate)
                if last or self._is_evaluation_due(number, batch):
                    self._evaluate(number)
                    if self._has_stalled():
                        self._writer.event(
                            "early-stopping",
                            f"stopped at step {number}: {self._best.stale} evaluations without improvement",
                        )
                        break
        return self._number

    def _batches(self) -> Generator[GlobalBatch]:
        batches = islice(self._job.loader.iterate(), self._job.total_steps)
        return prefetch(batches, self._job.strategy.prefetch, pin=self._step.precision.device.type == "cuda")

    def _set_learning_rate(self, number: int) -> float | None:
        """The rate of this step; None where Adafactor's relative steps set their own."""
        rate = self._recipe.train.learning_rate * self._schedule.factor(number)
        set_learning_rate(self._step.optimizer, rate)
        return None if self._step.optimizer.param_groups[0]["lr"] is None else rate

    def _is_evaluation_due(self, number: int, batch: GlobalBatch) -> bool:
        every = self._recipe.eval.every_steps
        return batch.epoch.is_integer() if every is None else number % every == 0

    def _evaluate(self, number: int) -> None:
        """Score the validation split, keep the checkpoint if it is the best so far."""
        self._log.write()  # a loss that is no number ends the run before anything is kept
        self._log.wait()
        started = time.perf_counter()
        if self._job.validation is None:
            self.save(number)
        else:
            self._evaluate_on(self._job.validation, number)
        self._log.leave_out(time.perf_counter() - started)

    def _evaluate_on(self, split: TokenizedSplit, number: int) -> None:
        with self._clock.phase("evaluation"):
            result = score_split(
                self._job.answerer,
                self._job.task,
                split,
                self._job.metrics,
                limit=self._recipe.eval.limit,
                progress=lambda done, total: self._view.progress("evaluating", done, total),
            )
        if result.loss is not None and not math.isfinite(result.loss):
            raise TrainingFailed(explain_nan(number, result.loss, self._step.precision.name))
        record = EvaluationRecord(
            number, "validation", result.loss, result.scores.values, result.rows, result.seconds, time.time()
        )
        self._writer.evaluation(record)
        kept, improved = self._best.judge(self._score_to_judge(result), result.loss)
        self._view.evaluation(record, best=kept)
        if kept:
            self.save(number)
        if number and self._schedule.observe(improved):
            self._writer.event("plateau", f"no better {self._best.name}: the learning rate is lowered at step {number}")

    def _score_to_judge(self, result: SplitScores) -> float | None:
        """The score that decides; where it can't be computed the loss decides from now on, which is an event."""
        name = self._best.name
        if name != "loss" and name not in result.scores.values:
            reason = result.scores.absent.get(name, "not computed")
            self._writer.event("fallback", f"{name} is absent ({reason}): the loss chooses the checkpoint")
            self._best = Best("loss", self._best.min_delta)
        return result.loss if self._best.name == "loss" else result.scores.values[name]

    def _has_stalled(self) -> bool:
        stopping = self._recipe.eval.early_stopping
        return stopping is not None and self._best.stale >= stopping.patience

    def save(self, number: int | None = None) -> None:
        """Keep the model as it is now; by default that of the last step made."""
        teaching = Teaching(
            kind=self._recipe.model.kind,
            task=self._job.task.recipe,
            beams=self._job.answerer.beams,
            max_new_tokens=self._job.answerer.max_new_tokens,
            step=self._number if number is None else number,
        )
        with self._clock.phase("checkpoint"):
            save_checkpoint(self.checkpoint, self._job.answerer.model, self._job.answerer.tokenizer, teaching)

    @property
    def checkpoint(self) -> Path:
        """Where the best model is kept."""
        return self._writer.path / files.CHECKPOINT
