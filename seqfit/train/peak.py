"""The peak of allocated bytes of a run's steps on a CPU, to be set beside the predicted one.

In: the step, and each global batch. Out: the step's outcome, and the highest peak so far. torch counts no CPU memory
by itself, and counting takes time, so of the first steps only those are watched whose largest micro-batch has more
tokens than any watched before. The first one is left out: libraries set themselves up in it.

    step                      1     2     3     4     5     ...  16   17
    tokens of its largest     900   800   700   850   600        820  990
    watched                         yes         yes                          peak: of the 850 tokens of step 4

SEQFIT_WATCHED_STEPS=3 watches up to step 3, whether anything was predicted or not: a comparison's trials are watched
while they warm up.
"""

from __future__ import annotations

import os

import torch

from seqfit.data.loader import GlobalBatch
from seqfit.plan.measured import run_measured
from seqfit.step.step import StepOutcome, TrainStep

FIRST, LAST = 2, 16  # steps that may be watched
WATCHED = "SEQFIT_WATCHED_STEPS"


class PeakWatch:
    """Calls the step, and watches it where that may show a higher peak."""

    def __init__(self, step: TrainStep, *, is_predicted: bool) -> None:
        self.peak_bytes: int | None = None
        self.at_step: int | None = None
        self.watched_steps = 0
        self.watched_seconds = 0.0  # of their phases: a watched step takes longer, so it is none to judge a time by
        self._step = step
        last = int(os.environ.get(WATCHED, LAST if is_predicted else 0))
        self._last = last if step.precision.device.type == "cpu" else 0
        self._most_tokens = 0

    def __call__(self, number: int, batch: GlobalBatch) -> StepOutcome:
        """One step."""
        tokens = max(micro_batch.tokens for micro_batch in batch.micro_batches)
        if not self._is_due(number) or tokens <= self._most_tokens:
            return self._step(batch)
        self._most_tokens = tokens
        before_seconds = sum(self._step.clock.totals.values())
        outcome, peak_bytes = run_measured(self._step, batch)
        self.watched_steps += 1
        self.watched_seconds += sum(self._step.clock.totals.values()) - before_seconds
        if self.peak_bytes is None or peak_bytes > self.peak_bytes:
            self.peak_bytes, self.at_step = peak_bytes, number
        return outcome

    def describe(self) -> str:
        """'allocated in step 4, the most of those watched'."""
        if self.at_step is None:
            return "not measured: no step was watched"
        return f"allocated in step {self.at_step}, the most of those watched"

    def _is_due(self, number: int) -> bool:
        """Not within `seqfit profile`: torch has one profiler."""
        return FIRST <= number <= self._last and not torch._C._autograd._profiler_enabled()
