"""The training loop: steps, records, evaluations, the best checkpoint, early stopping.

Nothing in it waits for the device but reading a record (every `log_every` steps) and an evaluation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from seqfit.data.loader import GlobalBatch, Loader
from seqfit.data.tokenize import TokenizedSplit
from seqfit.errors import TrainingFailed, complain
from seqfit.evaluate.answer import Answerer
from seqfit.evaluate.score import SplitScores, score_split
from seqfit.metrics import higher_is_better
from seqfit.model.folder import Teaching, save_checkpoint
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.records import EvaluationRecord, StepRecord
from seqfit.rundir.writer import RunWriter
from seqfit.step.step import StepOutcome, TrainStep
from seqfit.strategy.schema import Strategy
from seqfit.tasks import Task
from seqfit.train.schedules import Schedule
from seqfit.train.view import View


@dataclass
class _Window:
    """What is summed up between two records."""

    steps: int = 0
    tokens: int = 0
    losses: list[torch.Tensor] = field(default_factory=list)  # on the device until the record is written
    terms: list[int] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)


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


@dataclass(frozen=True)
class Job:
    """All that a run trains with, built and checked before the first step."""

    recipe: Recipe
    strategy: Strategy
    task: Task
    step: TrainStep
    loader: Loader
    validation: TokenizedSplit | None
    answerer: Answerer
    metrics: list[str]
    best: str  # the score that decides which checkpoint is kept
    total_steps: int
    fallbacks: list[str] = field(default_factory=list)  # what runs otherwise than the strategy asked for


class TrainingLoop:
    """Runs the steps of one run. All it leaves behind is in the run directory."""

    def __init__(self, job: Job, writer: RunWriter, view: View) -> None:
        self._job = job
        self._recipe = job.recipe
        self._step = job.step
        self._schedule = Schedule(job.recipe.train.schedule, job.total_steps)
        self._writer = writer
        self._view = view
        self._window = _Window()
        stopping = job.recipe.eval.early_stopping
        self._best = Best(job.best, stopping.min_delta if stopping is not None else 0.0)
        self._number = 0

    def run(self) -> int:
        """Train until the budget is used or nothing improves any more; returns the number of steps made."""
        if self._recipe.eval.at_start:
            self._evaluate(0)
        self._step.model.train()
        self._window = _Window()
        for number, batch in self._batches():
            self._number = number
            self._set_learning_rate(number)
            outcome = self._step(batch)
            self._observe(outcome, batch)
            self._view.advance(number)
            last = number == self._job.total_steps
            if number % self._recipe.train.log_every == 0 or last:
                self._log(number, batch, outcome)
            if last or self._is_evaluation_due(number, batch):
                self._evaluate(number)
                if self._has_stalled():
                    self._writer.event(
                        "early-stopping",
                        f"stopped at step {number}: {self._best.stale} evaluations without improvement",
                    )
                    break
        return self._number

    def _batches(self) -> Iterator[tuple[int, GlobalBatch]]:
        return zip(range(1, self._job.total_steps + 1), self._job.loader.iterate(), strict=False)

    def _set_learning_rate(self, number: int) -> None:
        for group in self._step.optimizer.param_groups:
            if group["lr"] is not None:  # None: Adafactor's relative steps set their own
                group["lr"] = self._recipe.train.learning_rate * self._schedule.factor(number)

    def _observe(self, outcome: StepOutcome, batch: GlobalBatch) -> None:
        self._window.steps += 1
        self._window.tokens += batch.source_tokens + batch.target_tokens
        self._window.losses.append(outcome.loss)
        self._window.terms.append(batch.loss_terms)

    def _log(self, number: int, batch: GlobalBatch, outcome: StepOutcome) -> None:
        """Write a record. This reads from the device and so waits for it."""
        window = self._window
        losses = torch.stack(window.losses).double().cpu()
        weights = torch.tensor(window.terms, dtype=torch.float64)
        loss = float((losses * weights).sum() / weights.sum())
        seconds = time.perf_counter() - window.started
        if not math.isfinite(loss):
            raise TrainingFailed(_explain_nan(number, loss, self._step.precision.name))
        rate = self._step.optimizer.param_groups[0]["lr"]
        record = StepRecord(
            step=number,
            epoch=round(batch.epoch, 4),
            loss=loss,
            learning_rate=None if rate is None else float(rate),
            gradient_norm=None if outcome.gradient_norm is None else float(outcome.gradient_norm),
            examples=batch.examples,
            source_tokens=batch.source_tokens,
            target_tokens=batch.target_tokens,
            padded_tokens=batch.padded_tokens,
            micro_batches=len(batch.micro_batches),
            step_seconds=seconds / window.steps,
            tokens_per_second=window.tokens / seconds,
            memory_bytes=measure_memory_bytes(self._step.precision.device),
            time=time.time(),
        )
        self._writer.step(record)
        self._view.step(record)
        self._window = _Window()

    def _is_evaluation_due(self, number: int, batch: GlobalBatch) -> bool:
        every = self._recipe.eval.every_steps
        return batch.epoch.is_integer() if every is None else number % every == 0

    def _evaluate(self, number: int) -> None:
        """Score the validation split, keep the checkpoint if it is the best so far."""
        paused = time.perf_counter()
        if self._job.validation is None:
            self.save(number)
        else:
            self._evaluate_on(self._job.validation, number)
        self._window.started += time.perf_counter() - paused  # evaluations don't count as step time

    def _evaluate_on(self, split: TokenizedSplit, number: int) -> None:
        result = score_split(
            self._job.answerer,
            self._job.task,
            split,
            self._job.metrics,
            limit=self._recipe.eval.limit,
            progress=lambda done, total: self._view.progress("evaluating", done, total),
        )
        if result.loss is not None and not math.isfinite(result.loss):
            raise TrainingFailed(_explain_nan(number, result.loss, self._step.precision.name))
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
        save_checkpoint(self.checkpoint, self._job.answerer.model, self._job.answerer.tokenizer, teaching)

    @property
    def checkpoint(self) -> Path:
        """Where the best model is kept."""
        return self._writer.path / files.CHECKPOINT


def measure_memory_bytes(device: torch.device) -> int:
    """Peak of what torch has allocated on a GPU; on a CPU what the process holds now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def _explain_nan(number: int, loss: float, precision: str) -> str:
    change = "Lower train.learning_rate, or set train.schedule.warmup_steps"
    if precision == "fp16":
        change = "Set strategy.precision=fp32 or bf16: T5's feed-forward layers overflow in fp16"
    return complain(
        f"the loss is {loss} at step {number} ({precision})",
        "training can't go on from a loss that is no number",
        change,
    )
