"""Observers of steps: the peak of allocated bytes on a CPU, and a fixed workload that says how fast the machine is.

The peak of allocated bytes of a run's steps on a CPU, to be set beside the predicted one.

In: the step, and each global batch. Out: the step's outcome, and the highest peak so far. torch counts no CPU memory
by itself, and counting takes time, so of the first steps only those are watched whose largest micro-batch has more
tokens than any watched before. The first one is left out: libraries set themselves up in it.

    step                      1     2     3     4     5     ...  16   17
    tokens of its largest     900   800   700   850   600        820  990
    watched                         yes         yes                          peak: of the 850 tokens of step 4

SEQFIT_WATCHED_STEPS=3 watches up to step 3, whether anything was predicted or not: a comparison's trials are watched
while they warm up. Then the largest of the other steps (above: 17) are kept, and `watch_largest` makes them once more
when the run is over, where no time is taken. Which one takes most depends on the model, so there are three measures of
large: tokens, targets (a head's logits) and pairs of tokens (attention).

How fast the machine is at this moment: a fixed piece of work, done and timed between two steps.

In: how long the last step took. Out: the seconds of one piece. A virtual machine may be a third slower for a minute
because of its neighbours, which no clock of its own tells; a step and the piece that follows it slow down alike. So a
step counted in pieces says what the step is worth, whatever the minute was like:

    step        45 ms   46 ms   61 ms   60 ms
    piece       5.7     5.7     7.7     7.5         step in pieces   7.9   8.1   7.9   8.0

The piece is a small transformer layer, forward and backward, for it must slow down as a step does. Where that was
measured (blocks of 40 steps of a tiny T5, one thread) steps scattered by 11%; in units of this piece by 1.6%, of a
matrix product alone by 5%. Trials of a comparison ask for it, on a CPU: SEQFIT_YARDSTICK=1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from seqfit.data.loader import GlobalBatch
from seqfit.data.micro_batch import MicroBatch
from seqfit.errors import describe_error
from seqfit.planning.measured import run_measured
from seqfit.rundir.records import EventKind
from seqfit.step.clock import StepClock
from seqfit.step.step import StepOutcome, TrainStep
from seqfit.system import quiet_profiler
from seqfit.training.trial_variables import CALIBRATED, WATCHED

FIRST, LAST = 2, 16  # steps that may be watched
_Measure = tuple[str, bool]  # of what, and whether a micro-batch is the only one of its step


@dataclass(frozen=True)
class _Largest:
    """The step that has most of something."""

    size: int
    number: int
    batch: GlobalBatch | None  # None: it was watched


class PeakWatch:
    """Calls the step, and watches it where that may show a higher peak."""

    def __init__(
        self, step: TrainStep, tell: Callable[[EventKind, str], None], *, is_predicted: bool, watches: bool = True
    ) -> None:
        self.peak_bytes: int | None = None
        self.at_step: int | None = None
        self.watched: list[int] = []  # steps: they take longer, so step times leave them out
        self._step = step
        self._tell = tell
        on_cpu = step.precision.device.type == "cpu" and watches
        last = int(os.environ.get(WATCHED, LAST if is_predicted else 0))
        self._last = last if on_cpu else 0
        self._keeps_largest = WATCHED in os.environ and on_cpu and step.way.world.size == 1
        self._largest: dict[_Measure, _Largest] = {}
        self._most_tokens = 0

    def __call__(self, number: int, batch: GlobalBatch) -> StepOutcome:
        """One step."""
        tokens = max(micro_batch.tokens for micro_batch in batch.micro_batches)
        is_watched = self._is_due(number) and tokens > self._most_tokens
        if is_watched:
            self._most_tokens = tokens
            outcome = self._watch(number, batch)
        else:
            outcome = self._step(batch)
        if self._keeps_largest:
            self._keep_largest(number, batch, is_watched=is_watched)
        return outcome

    @property
    def is_of_all_steps(self) -> bool:
        """Whether the largest of all steps were watched, so that none is known that may have needed more."""
        return bool(self._largest) and all(largest.batch is None for largest in self._largest.values())

    def watch_largest(self) -> int:
        """Make the largest steps once more that were not watched; how many those were.

        For a run that is over and written: weights and the optimizer's state move on. Its times do not.
        """
        left = {largest.number: largest.batch for largest in self._largest.values() if largest.batch is not None}
        usual, self._step.clock = self._step.clock, StepClock(self._step.precision.device)
        try:
            for number, batch in left.items():
                with quiet_profiler():
                    self._note(number, run_measured(self._step, batch)[1])
        finally:
            self._step.clock = usual
        self._largest = {measure: replace(largest, batch=None) for measure, largest in self._largest.items()}
        return len(left)

    def describe(self) -> str:
        """'allocated in step 4, the most of those watched'."""
        if self.at_step is None:
            return "not measured: no step was watched"
        of = "all steps" if self.is_of_all_steps else "those watched"
        return f"allocated in step {self.at_step}, the most of {of}"

    def _watch(self, number: int, batch: GlobalBatch) -> StepOutcome:
        with quiet_profiler():
            outcome, peak_bytes = self._measure(batch)
        self.watched.append(number)
        if peak_bytes is not None:
            self._note(number, peak_bytes)
        return outcome

    def _measure(self, batch: GlobalBatch) -> tuple[StepOutcome, int | None]:
        """The step, made once, and its peak. Where it can't be measured the step counts all the same."""
        made: list[StepOutcome] = []
        failed: list[BaseException] = []

        def make(batch: GlobalBatch) -> StepOutcome:
            try:
                made.append(self._step(batch))
            except BaseException as error:
                failed.append(error)
                raise
            return made[0]

        try:
            return run_measured(self._step, batch, make)
        except Exception as error:  # of torch's profiler, of whatever kind: a measurement ends no run
            if failed:
                raise failed[0]  # noqa: B904, the step's own: what stopping the profiler said is of no interest
            self._last, self._keeps_largest = 0, False
            self._tell(EventKind.MEMORY, f"peak memory is not measured any more: {describe_error(error)}")
            return made[0] if made else self._step(batch), None

    def _note(self, number: int, peak_bytes: int) -> None:
        if self.peak_bytes is None or peak_bytes > self.peak_bytes:
            self.peak_bytes, self.at_step = peak_bytes, number

    def _keep_largest(self, number: int, batch: GlobalBatch, *, is_watched: bool) -> None:
        """After the step: one that memory ran out in is not kept, but what became of it."""
        for measure, size in _measure(batch):
            largest = self._largest.get(measure)
            if largest is None or (size, is_watched) > (largest.size, largest.batch is None):
                self._largest[measure] = _Largest(size, number, None if is_watched else batch)

    def _is_due(self, number: int) -> bool:
        return FIRST <= number <= self._last


def _measure(batch: GlobalBatch) -> Iterator[tuple[_Measure, int]]:
    """How large a step is. A micro-batch that others came before finds their gradients, so the first of several has no
    say, and those alone in their step are measured apart."""
    is_alone = len(batch.micro_batches) == 1
    for micro_batch in batch.micro_batches[0 if is_alone else 1 :]:
        yield ("tokens", is_alone), micro_batch.tokens
        if micro_batch.decoder_ids is not None:
            yield ("targets", is_alone), micro_batch.decoder_ids.numel()
        yield ("pairs", is_alone), _count_pairs(micro_batch)


def _count_pairs(micro_batch: MicroBatch) -> int:
    """Of tokens that attention compares within an example, sources and targets taken as one."""
    if micro_batch.source_lengths is not None:
        targets = micro_batch.target_lengths or (0,) * micro_batch.examples
        return sum((source + target) ** 2 for source, target in zip(micro_batch.source_lengths, targets, strict=True))
    return micro_batch.tokens**2 // micro_batch.examples  # padded: all as long as the longest


_WIDTH, _HEADS, _INNER, _ROWS, _TOKENS = 128, 4, 512, 4, 64
_SHARE = 0.05  # of a step's time is spent on it: more than one piece where steps are long


class CalibrationWorkload:
    """The piece of work, and its timing."""

    def __init__(self) -> None:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # training's own random numbers stay what they are
            torch.manual_seed(0)
            self._layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, _INNER, dropout=0.0, batch_first=True)
            self._states = torch.randn(_ROWS, _TOKENS, _WIDTH)
        self._weights = list(self._layer.parameters())

    def measure(self, step_seconds: float) -> float:
        """Seconds of a piece, the mean of as many as fit the share of a step. The first one is not timed: it finds the
        caches full of the step's data, the more the larger the step."""
        self._do()
        started, pieces = time.perf_counter(), 0
        while pieces == 0 or time.perf_counter() - started < _SHARE * step_seconds:
            self._do()
            pieces += 1
        return (time.perf_counter() - started) / pieces

    def _do(self) -> None:
        torch.autograd.grad(self._layer(self._states).sum(), self._weights)


def build_calibration_workload(device: torch.device, processes: int) -> CalibrationWorkload | None:
    """Where it is asked for. Several processes would disturb each other's, and a GPU is not slowed by neighbours."""
    return CalibrationWorkload() if os.environ.get(CALIBRATED) and device.type == "cpu" and processes == 1 else None
