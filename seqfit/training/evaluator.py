"""Evaluations while training: score the validation split, keep the checkpoint of the best model so far.

A signal in the middle of an evaluation ends it: the run takes its snapshot at once, and a resume evaluates again. Where
memory runs out, the evaluation is made again in smaller pieces, and so are those after it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from seqfit.data.batching import RowNumbers
from seqfit.data.tokenize import TokenizedSplit
from seqfit.errors import OutOfMemory, TrainingFailed
from seqfit.evaluation.generator import Generated, adjust_threshold, generate_split
from seqfit.evaluation.scoring import SplitScores, score_generated, spread_over_rows
from seqfit.evaluation.threshold import Threshold
from seqfit.model.checkpoint import GenerationMetadata, save_checkpoint
from seqfit.rundir import files
from seqfit.rundir.atomic import explained_failures
from seqfit.rundir.events import (
    EvaluationInterruptedEvent,
    FallbackEvent,
    OutOfMemoryEvent,
    PlateauEvent,
    ThresholdEvent,
)
from seqfit.rundir.records import EvaluationRecord
from seqfit.rundir.writer import RunWriter
from seqfit.training.nonfinite import explain_nan
from seqfit.training.oom import attempt
from seqfit.training.state import Best, TrainingState
from seqfit.training.stopping import Stopping
from seqfit.training.trial_variables import UNSCORED
from seqfit.training.view import TrainingView

_LEAST_TOKENS = 64  # of an evaluation batch; a longer row is a batch by itself


class _StopAsked(Exception):
    """A signal came in the middle of an evaluation."""


class Evaluator:
    """Evaluates the model of a run, and keeps the best."""

    def __init__(self, progress: TrainingState, writer: RunWriter, view: TrainingView, stopping: Stopping) -> None:
        self._progress = progress
        self._job = progress.job
        self._writer = writer
        self._view = view
        self._stopping = stopping
        self._world = progress.job.step.way.world
        self._threshold: Threshold | None = None  # multilabel: that of the last evaluation

    def evaluate(self) -> None:
        """Score the model as it is now; it becomes the checkpoint if it is the best so far."""
        log = self._progress.log
        log.write()
        log.judge_open()  # a loss that is no number ends the run before anything is kept
        log.wait()
        started = time.perf_counter()
        self._progress.evaluation_is_due = True
        try:
            if self._job.validation is None or UNSCORED in os.environ:
                self.save()
            else:
                self._evaluate_on(self._job.validation)
            self._progress.evaluation_is_due = False
        except _StopAsked:
            self._writer.event(EvaluationInterruptedEvent(self._progress.step))
        log.leave_out(time.perf_counter() - started)

    def save(self) -> None:
        """Keep the model as it is now."""
        teaching = GenerationMetadata(
            kind=self._job.recipe.model.kind,
            task=self._job.task.recipe,
            beams=self._job.answerer.beams,
            max_new_tokens=self._job.answerer.max_new_tokens,
            step=self._progress.step,
            threshold=None if self._threshold is None else self._threshold.value,
        )
        with self._job.step.clock.phase("checkpoint"), self._job.whole_model() as model:
            if self._world.is_first:
                with explained_failures(self.checkpoint, self._writer.path):
                    save_checkpoint(self.checkpoint, model, self._job.answerer.tokenizer, teaching)

    @property
    def checkpoint(self) -> Path:
        """Where the best model is kept."""
        return self._writer.path / files.CHECKPOINT

    def _evaluate_on(self, split: TokenizedSplit) -> None:
        number, best, schedule = self._progress.step, self._progress.best, self._progress.schedule
        with self._job.step.clock.phase("evaluation"), self._job.whole_model():
            result = self._score(split)
        if result.loss is not None and not math.isfinite(result.loss):
            raise TrainingFailed(explain_nan(number, result.loss, self._job.step.precision.name))
        record = EvaluationRecord(
            number, "validation", result.loss, result.scores.values, result.rows, result.seconds, time.time()
        )
        self._writer.evaluation(record)
        kept, improved = best.judge(self._score_to_judge(best, result), result.loss)
        self._progress.is_best = kept
        self._view.evaluation(record, best=kept)
        if kept:
            self.save()
            if self._threshold is not None:
                found = self._threshold
                self._writer.event(ThresholdEvent(number, found.value, found.micro_f1, found.micro_f1_at_half))
        if number and schedule.observe(improved):
            self._writer.event(PlateauEvent(number, best.name))

    def _score(self, split: TokenizedSplit) -> SplitScores:
        """Each process answers a share of the rows, long and short ones alike, and all of them score all answers."""
        started = time.perf_counter()
        rows = spread_over_rows(len(split), self._job.recipe.eval.limit)
        by_length = np.argsort(split.source_lengths[rows] + split.target_lengths[rows], kind="stable")
        own = rows[np.sort(by_length[self._world.rank :: self._world.size])]
        while (answers := self._answer(split, own)) is None:
            self._make_smaller()
        joined, self._threshold = adjust_threshold(self._progress.answerer, split, rows, self._join(rows, own, answers))
        return score_generated(self._job.task, split, rows, joined, self._job.metrics, started=started)

    def _answer(self, split: TokenizedSplit, rows: RowNumbers) -> Generated | None:
        """None where memory ran out, here or in another process."""
        answers, is_stopped = None, False
        try:
            answers = attempt(lambda: generate_split(self._progress.answerer, split, rows, self._show))
        except _StopAsked:
            is_stopped = True
        fine, going_on, stop = self._world.all_reduce_min(
            [int(answers is not None), int(not is_stopped), self._stopping.offer()]
        )
        self._stopping.settle(stop)
        if not going_on:
            raise _StopAsked
        return answers if fine else None

    def _join(self, rows: RowNumbers, own: RowNumbers, answers: Generated) -> Generated:
        """The answers of all processes, in the order of the rows."""
        found: Sequence[list[float] | None] = answers.probabilities or [None] * len(answers.texts)
        answered = list(zip(own.tolist(), answers.texts, found, strict=True))
        parts = self._world.all_gather([answered, answers.loss_sum, answers.terms])
        by_row = {row: (text, values) for part, _, _ in parts for row, text, values in part}
        texts, probabilities = zip(*(by_row[row] for row in rows.tolist()), strict=True)
        loss_sum, terms = (sum(part[place] for part in parts) for place in (1, 2))
        return Generated(list(texts), loss_sum, terms, None if None in probabilities else list(probabilities))

    def _show(self, done: int, total: int) -> None:
        if self._stopping.noted:
            raise _StopAsked
        self._view.progress("evaluating", done, total)

    def _make_smaller(self) -> None:
        answerer = self._progress.answerer
        tokens, rows = answerer.batch_tokens // 2, max(1, answerer.decoded_rows // 2)
        where = f"the evaluation of step {self._progress.step}"
        if tokens < _LEAST_TOKENS:
            raise OutOfMemory(
                f"out of memory (OOM) in {where}, row by row",
                "the least that an evaluation takes is one row",
                "Set a smaller task.max_source_tokens or eval.max_new_tokens",
            )
        self._progress.answerer = replace(answerer, batch_tokens=tokens, decoded_rows=rows)
        self._writer.event(
            OutOfMemoryEvent(self._progress.step, "evaluation", "retry", evaluation_tokens=tokens, evaluation_rows=rows)
        )

    def _score_to_judge(self, best: Best, result: SplitScores) -> float | None:
        """The score that decides; where it can't be computed the loss decides from now on, which is an event."""
        if best.name != "loss" and best.name not in result.scores.values:
            reason = result.scores.absent.get(best.name, "not computed")
            why = f"{best.name} is absent ({reason})"
            self._writer.event(FallbackEvent("best-metric", "the loss chooses the checkpoint", why))
            best.start_over("loss")
        return result.loss if best.name == "loss" else result.scores.values[best.name]
