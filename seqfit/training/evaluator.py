"""Evaluations during training: score the validation split, keep the checkpoint of the best model so far.

A signal during an evaluation ends it: the run takes its snapshot at once, and a resume evaluates again. After OOM an
evaluation is repeated with smaller batches, and the later ones use them, too.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqfit.data import TokenizedSplit
from seqfit.errors import OutOfMemory, TrainingFailed
from seqfit.evaluation import (
    SplitScores,
    Threshold,
    adjust_threshold,
    score_generated,
    spread_over_rows,
)
from seqfit.generation import Generated, generate_split
from seqfit.metrics import own_score_names
from seqfit.model import Checkpoint, GenerationMetadata
from seqfit.rundir import RunWriter, explained_failures, files, records
from seqfit.training.nonfinite import explain_nan
from seqfit.training.oom import attempt
from seqfit.training.state import Best, TrainingState
from seqfit.training.trial_variables import UNSCORED
from seqfit.training.view import TrainingView

_LEAST_TOKENS = 64  # of an evaluation batch; a longer row is a batch by itself


class _StopRequested(Exception):
    """A signal came during an evaluation."""


class Evaluator:
    def __init__(self, state: TrainingState, writer: RunWriter, view: TrainingView) -> None:
        self._state = state
        self._setup = state.setup
        self._writer = writer
        self._view = view
        self._stopping = state.setup.coordination.stopping
        self._world = state.setup.world
        self._threshold: Threshold | None = None  # multilabel: that of the last evaluation

    def evaluate(self) -> None:
        log = self._state.log
        log.write()
        log.check_open()  # a NaN or Inf loss ends the run before anything is kept
        log.wait()
        started = time.perf_counter()
        self._state.evaluation_is_due = True
        try:
            if self._setup.validation is None or UNSCORED in os.environ:
                self.save()
            else:
                self._evaluate_on(self._setup.validation)
            self._state.evaluation_is_due = False
        except _StopRequested:
            self._writer.event(records.EvaluationInterruptedEvent(self._state.step))
        log.leave_out(time.perf_counter() - started)

    def save(self) -> None:
        metadata = GenerationMetadata(
            kind=self._setup.recipe.model.kind,
            task=self._setup.task.recipe,
            beams=self._setup.generator.beams,
            max_new_tokens=self._setup.generator.max_new_tokens,
            step=self._state.step,
            threshold=None if self._threshold is None else self._threshold.value,
            search=self._setup.generator.options.to_transformers(),
        )
        with self._setup.step.clock.phase("checkpoint"), self._setup.whole_model() as model:
            if self._world.is_first:
                with explained_failures(self.checkpoint, self._writer.path):
                    Checkpoint(model, self._setup.generator.tokenizer, metadata).save(self.checkpoint)

    @property
    def checkpoint(self) -> Path:
        return self._writer.path / files.CHECKPOINT

    def _evaluate_on(self, split: TokenizedSplit) -> None:
        number, best, schedule = self._state.step, self._state.best, self._state.schedule
        with self._setup.step.clock.phase("evaluation"), self._setup.whole_model():
            result = self._score(split)
        if result.loss is not None and not math.isfinite(result.loss):
            raise TrainingFailed(*explain_nan(number, result.loss, self._setup.step.precision.name))
        record = records.EvaluationRecord(
            number,
            "validation",
            result.loss,
            result.scores.values,
            result.rows,
            result.seconds,
            time.time(),
            result.list_intervals(),
        )
        self._writer.evaluation(record)
        for name in own_score_names(self._setup.metrics):
            if name in result.scores.absent:
                reason = result.scores.absent[name]
                self._writer.event(records.FallbackEvent("metric", f"{name} is left out of this evaluation", reason))
        kept, improved = best.update(self._choose_score(best, result), result.loss)
        self._state.is_best = kept
        self._view.evaluation(record, best=kept)
        if kept:
            self.save()
            if (found := self._threshold) is not None:
                self._writer.event(records.ThresholdEvent(number, found.value, found.micro_f1, found.micro_f1_at_half))
        if number and schedule.observe(improved):
            self._writer.event(records.PlateauEvent(number, best.name))

    def _score(self, split: TokenizedSplit) -> SplitScores:
        """Each rank generates for a share of the rows, long and short ones alike, and every rank scores all of them."""
        started = time.perf_counter()
        rows = spread_over_rows(len(split), self._setup.recipe.eval.limit)
        by_length = np.argsort(split.source_lengths[rows] + split.target_lengths[rows], kind="stable")
        own = rows[np.sort(by_length[self._world.rank :: self._world.size])]
        while (generated := self._generate(split, own)) is None:
            self._halve_batches()
        joined, self._threshold = adjust_threshold(self._state.generator, split, rows, self._join(rows, own, generated))
        return score_generated(self._setup.task, split, rows, joined, self._setup.metrics, started=started)

    def _generate(self, split: TokenizedSplit, rows: NDArray[np.int64]) -> Generated | None:
        """None after OOM, here or on another rank."""
        generated, is_stopped = None, False
        try:
            generated = attempt(lambda: generate_split(self._state.generator, split, rows, self._show))
        except _StopRequested:
            is_stopped = True
        own = [int(generated is not None), int(not is_stopped), self._stopping.offer()]
        is_done, continues, stop = self._world.all_reduce_min(own)
        self._stopping.settle(stop)
        if not continues:
            raise _StopRequested
        return generated if is_done else None

    def _join(self, rows: NDArray[np.int64], own: NDArray[np.int64], generated: Generated) -> Generated:
        """What all ranks have generated, in the order of the rows."""
        found: Sequence[list[float] | None] = generated.probabilities or [None] * len(generated.texts)
        of_rank = list(zip(own.tolist(), generated.texts, found, strict=True))
        parts = self._world.all_gather([of_rank, generated.loss_sum, generated.terms])
        by_row = {row: (text, values) for part, _, _ in parts for row, text, values in part}
        texts, probabilities = zip(*(by_row[row] for row in rows.tolist()), strict=True)
        loss_sum, terms = (sum(part[place] for part in parts) for place in (1, 2))
        return Generated(list(texts), loss_sum, terms, None if None in probabilities else list(probabilities))

    def _show(self, done: int, total: int) -> None:
        if self._stopping.noted:
            raise _StopRequested
        self._view.progress("evaluating", done, total)

    def _halve_batches(self) -> None:
        generator = self._state.generator
        tokens, rows = generator.batch_tokens // 2, max(1, generator.decoded_rows // 2)
        if tokens < _LEAST_TOKENS:
            raise OutOfMemory(
                f"out of memory (OOM) in the evaluation of step {self._state.step}, row by row",
                "an evaluation batch has at least one row",
                "Set a smaller task.max_source_tokens or eval.max_new_tokens",
            )
        self._state.generator = replace(generator, batch_tokens=tokens, decoded_rows=rows)
        sizes = {"evaluation_tokens": tokens, "evaluation_rows": rows}
        self._writer.event(records.OutOfMemoryEvent(self._state.step, "evaluation", "retry", **sizes))

    def _choose_score(self, best: Best, result: SplitScores) -> float | None:
        """The score that chooses the checkpoint; where it can't be computed the loss does from now on: an event."""
        if best.name != "loss" and best.name not in result.scores.values:
            reason = result.scores.absent.get(best.name, "not computed")
            why = f"{best.name} is absent ({reason})"
            self._writer.event(records.FallbackEvent("best-metric", "the loss chooses the checkpoint", why))
            best.start_over("loss")
        return result.loss if best.name == "loss" else result.scores.values[best.name]
