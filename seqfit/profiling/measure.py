"""The time of a few steps without a profiler, which slows everything down and the host most of all.

In: a job. Out: a `Measurement`: seconds of a step, by phases (the step's own clock), tokens, padding, micro-batches,
and, where asked for, the time of an evaluation.

    5 steps in 2.0 s, an evaluation of 3 s every 10 steps    ->    (0.4 + 0.3) s for a step with its share of evaluation

An evaluation is timed on a few rows and scaled to all of them; on very few rows that is too much, for a batch of one
row costs almost as much as a full one.

A few steps of the real training loop, watched, and ended before it evaluates or saves anything.

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
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from seqfit.data.loader import GlobalBatch
from seqfit.evaluation.scoring import score_split
from seqfit.rundir.records import BETWEEN_STEPS
from seqfit.rundir.writer import RunWriter
from seqfit.training.log import StepWork
from seqfit.training.loop import build_run, train_to_end
from seqfit.training.observer import Observer
from seqfit.training.setup import TrainingSetup
from seqfit.training.view import SilentView


class _AfterStep(Observer):
    def __init__(self, after: Callable[[int], None]) -> None:
        self._after = after

    def after_step(self, number: int, batch: GlobalBatch) -> None:
        self._after(number)


def run_steps(job: TrainingSetup, steps: int, after: Callable[[int], None]) -> None:
    """Make so many steps, and call `after` with each one's number, from 1."""
    evaluation = job.recipe.eval.model_copy(update={"every_steps": steps + 1, "at_start": False})
    # One more in all than are made: the last step of a run is followed by an evaluation.
    setup = replace(job, recipe=job.recipe.model_copy(update={"eval": evaluation}), total_steps=steps + 1)
    with tempfile.TemporaryDirectory(prefix="seqfit-profile-") as folder:
        writer = RunWriter.create(Path(folder) / "run")
        with closing(writer):
            train_to_end(build_run(setup, writer, SilentView(), StepWork(), [_AfterStep(after)], max_steps=steps))


WARM_UP_STEPS = 2
_EVALUATED_ROWS = 64


@dataclass(frozen=True)
class Measurement:
    """Some steps, on average."""

    step_seconds: float
    phases: dict[str, float]  # share of the step
    tokens: float  # real ones, of a step
    padding_share: float
    micro_batches: float
    tokens_per_micro_batch: float  # padding included
    largest_targets: int  # target positions of the largest micro-batch, padding included
    evaluation_seconds: float | None = None  # of one whole evaluation
    evaluate_every: int | None = None  # steps

    @property
    def seconds_per_token(self) -> float:
        """With evaluation's share, so that settings of any kind can be compared."""
        evaluation = 0.0
        if self.evaluation_seconds is not None and self.evaluate_every:
            evaluation = self.evaluation_seconds / self.evaluate_every
        return (self.step_seconds + evaluation) / self.tokens


def measure_training_steps(job: TrainingSetup, steps: int, *, evaluate: bool = True) -> Measurement:
    """Time `steps` steps behind the warm-up."""
    watch = _Watch(job, WARM_UP_STEPS, WARM_UP_STEPS + steps)
    run_steps(job, WARM_UP_STEPS + steps, watch.after)
    batches = list(islice(job.loader.iterate(), WARM_UP_STEPS, WARM_UP_STEPS + steps))  # the same ones again
    real = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    padded = sum(batch.padded_tokens for batch in batches)
    pieces = sum(len(batch.micro_batches) for batch in batches)
    return Measurement(
        step_seconds=watch.seconds / steps,
        phases={name: seconds / watch.seconds for name, seconds in watch.phases.items()},
        tokens=real / steps,
        padding_share=padded / (real + padded),
        micro_batches=pieces / steps,
        tokens_per_micro_batch=(real + padded) / pieces,
        largest_targets=max(_target_positions(batches)),
        evaluation_seconds=_time_evaluation(job) if evaluate else None,
        evaluate_every=job.recipe.eval.every_steps or job.loader.count_steps(1),
    )


class _Watch:
    """Looks at the clocks after the warm-up and after the last step."""

    def __init__(self, job: TrainingSetup, first: int, last: int) -> None:
        self._job = job
        self._first, self._last = first, last
        self._started, self._before = 0.0, dict[str, float]()
        self.seconds, self.phases = 0.0, dict[str, float]()

    def after(self, step: int) -> None:
        if step not in (self._first, self._last):
            return
        if self._job.step.precision.device.type == "cuda":
            torch.cuda.synchronize()  # twice in a measurement: both ends on an idle device
        totals, now = self._job.step.clock.totals, time.perf_counter()
        if step == self._first:
            self._started, self._before = now, totals
            return
        self.seconds = now - self._started
        spent = {name: seconds - self._before.get(name, 0.0) for name, seconds in totals.items()}
        self.phases = {name: seconds for name, seconds in spent.items() if name not in BETWEEN_STEPS}


def _target_positions(batches: list[GlobalBatch]) -> Iterator[int]:
    for batch in batches:
        for piece in batch.micro_batches:
            yield 0 if piece.decoder_ids is None else piece.decoder_ids.numel()


def _time_evaluation(job: TrainingSetup) -> float | None:
    split = job.validation
    if split is None:
        return None
    rows = min(len(split), job.recipe.eval.limit or len(split))
    timed = score_split(job.generator, job.task, split, job.metrics, limit=min(rows, _EVALUATED_ROWS))
    job.step.model.train()
    return timed.seconds * rows / timed.rows
