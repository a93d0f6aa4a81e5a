"""The time of a few steps without a profiler, which slows everything down and the host most of all.

In: a `TrainingSetup`. Out: a `Measurement`: seconds per step, by phases (the step's own clock), tokens, padding,
micro-batches, and optionally the time of an evaluation.

    5 steps in 2.0 s, an evaluation of 3 s every 10 steps    ->    (0.4 + 0.3) s for a step with its share of evaluation

The steps are those of `run_steps`, the loop of `seqfit train`; those of the first three seconds are left out: on a
CPU a run gets 5% faster meanwhile. At least so many are measured as are asked for, and more if they are short.

Evaluations are left out, because one may take longer than all the steps. One is timed by itself, on a few rows, and
scaled to all of them; with very few rows that overestimates, because a batch of one row costs almost as much as a full
one. A step's peak is not measured here: that would slow the timed steps down, and needs torch's profiler (`capture`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from seqfit.data import GlobalBatch
from seqfit.evaluation import score_split
from seqfit.rundir import records
from seqfit.training import TrainingSetup, run_steps

_WARM_UP_SECONDS, _MEASURED_SECONDS, _MOST_STEPS = 3.0, 2.0, 20
_EVALUATED_ROWS = 64


@dataclass(frozen=True)
class Measurement:
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


def measure_training_steps(setup: TrainingSetup, steps: int, *, evaluate: bool = True) -> Measurement:
    began = time.perf_counter()
    run_steps(setup, 2)
    per_second = 2 / (time.perf_counter() - began)
    warm_up = 2 + min(round(per_second * _WARM_UP_SECONDS) + 1, _MOST_STEPS)
    steps = max(steps, min(round(per_second * _MEASURED_SECONDS), _MOST_STEPS))
    readings: list[tuple[Mapping[str, float], float]] = []  # after the warm-up and after the last step
    batches: list[GlobalBatch] = []  # between them

    def read_clocks(step: int, batch: GlobalBatch) -> None:
        if step > warm_up:
            batches.append(batch)
        if step in (warm_up, warm_up + steps):
            if setup.step.precision.device.type == "cuda":
                torch.cuda.synchronize()  # twice in a measurement: both ends on an idle device
            readings.append((setup.step.clock.totals, time.perf_counter()))

    run_steps(setup, warm_up - 2 + steps, read_clocks, done=2)
    (before, began), (after, ended) = readings
    seconds = ended - began
    spent = {name: total - before.get(name, 0.0) for name, total in after.items() if name not in records.BETWEEN_STEPS}
    real = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    padded = sum(batch.padded_tokens for batch in batches)
    micro_batches = [micro_batch for batch in batches for micro_batch in batch.micro_batches]
    return Measurement(
        step_seconds=seconds / steps,
        phases={name: phase_seconds / seconds for name, phase_seconds in spent.items()},
        tokens=real / steps,
        padding_share=padded / (real + padded),
        micro_batches=len(micro_batches) / steps,
        tokens_per_micro_batch=(real + padded) / len(micro_batches),
        largest_targets=max(0 if one.decoder_ids is None else one.decoder_ids.numel() for one in micro_batches),
        evaluation_seconds=_time_evaluation(setup) if evaluate else None,
        evaluate_every=setup.recipe.eval.every_steps or setup.loader.count_steps(1),
    )


def _time_evaluation(setup: TrainingSetup) -> float | None:
    split = setup.validation
    if split is None:
        return None
    rows = min(len(split), setup.recipe.eval.limit or len(split))
    timed = score_split(setup.generator, setup.task, split, setup.metrics, limit=min(rows, _EVALUATED_ROWS))
    setup.step.model.train()
    return timed.seconds * rows / timed.rows
