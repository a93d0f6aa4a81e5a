"""Observers of steps: the peak of allocated bytes on a CPU, and a calibration workload that shows the machine's speed.

**Peak.** torch does not count CPU memory by itself, and counting takes time. So among the first steps only those are
measured whose largest micro-batch has more tokens than any measured before, without step 1, in which libraries
initialise themselves.

    step                      1     2     3     4     5     ...  16   17
    tokens of its largest     900   800   700   850   600        820  990
    measured                        yes         yes                          peak: of the 850 tokens of step 4

SEQFIT_WATCHED_STEPS=3 measures up to step 3, whether anything was predicted or not: trials of a comparison are measured
during warm-up. Then the largest of the other steps (above: 17) are kept, and `measure_largest` repeats them after the
run, outside all timing. Which one needs most memory depends on the model, so there are three measures of size: tokens,
targets (a head's logits) and pairs of tokens (attention).

**Calibration workload.** A virtual machine may be a third slower for a minute because of its neighbours, which none of
its clocks shows; a step and the workload that follows it slow down alike. So the time of a step in units of the
workload does not depend on the machine's speed at that moment:

    step        45 ms   46 ms   61 ms   60 ms
    workload    5.7     5.7     7.7     7.5         step / workload   7.9   8.1   7.9   8.0

It is a small transformer layer, forward and backward, because it must slow down as a step does. Measured (blocks of 40
steps of a tiny T5, one thread): step times varied by 11%, in units of this workload by 1.6%, in units of a matrix
product by 5%.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
from torch import nn

from seqfit.data import GlobalBatch
from seqfit.errors import describe_error
from seqfit.planning import RunPrediction
from seqfit.rundir import EventKind, records
from seqfit.step import MeasuredPeak, ParallelStrategy, StepClock, TrainStep, measure_peak
from seqfit.system import quiet_profiler
from seqfit.telemetry import read_peak_bytes
from seqfit.training.observer import Observer
from seqfit.training.trial_variables import CALIBRATED, WATCHED

FIRST, LAST = 2, 16  # steps that may be measured
_Measure = tuple[str, bool]  # of what, and whether the micro-batch is the only one of its step


@dataclass(frozen=True)
class _Largest:
    size: int
    number: int
    batch: GlobalBatch | None  # None: it was measured


class PeakObserver(Observer):
    def __init__(self, step: TrainStep, report: Callable[[EventKind, str], None], *, is_predicted: bool) -> None:
        self.peak_bytes: int | None = None
        self.at_step: int | None = None
        self.measured: list[int] = []  # steps: measuring slows them down, so their times do not count
        self._step = step
        self._report = report
        on_cpu = step.precision.device.type == "cpu"
        self._last = int(os.environ.get(WATCHED, LAST if is_predicted else 0)) if on_cpu else 0
        self._keeps_largest = WATCHED in os.environ and on_cpu and step.parallel.name == ParallelStrategy.name
        self._largest: dict[_Measure, _Largest] = {}
        self._most_tokens = 0
        self._measured: tuple[GlobalBatch, int | None] | None = None  # of this step

    @contextmanager
    def around_step(self, number: int, batch: GlobalBatch) -> Iterator[None]:
        self._measured = None
        tokens = max(micro_batch.tokens for micro_batch in batch.micro_batches)
        if not FIRST <= number <= self._last or tokens <= self._most_tokens:
            yield
            return
        self._most_tokens = tokens
        with quiet_profiler(), _Guarded(partial(measure_peak, self._step, batch)) as guarded:
            yield
        self.measured.append(number)
        self._measured = batch, None if guarded.value is None else guarded.value.bytes
        if guarded.error is not None:
            self._measured = batch, None
            self._last, self._keeps_largest = 0, False
            self._report(EventKind.MEMORY, f"peaks of further steps are not measured: {describe_error(guarded.error)}")

    def after_step(self, number: int, batch: GlobalBatch) -> None:
        """A measurement counts unless the batch was split again after OOM."""
        is_measured = self._measured is not None and self._measured[0] is batch
        if is_measured and self._measured is not None and self._measured[1] is not None:
            self._note(number, self._measured[1])
        if self._keeps_largest:
            for measure, size in _measure(batch):
                largest = self._largest.get(measure)
                if largest is None or (size, is_measured) > (largest.size, largest.batch is None):
                    self._largest[measure] = _Largest(size, number, None if is_measured else batch)

    @property
    def is_of_all_steps(self) -> bool:
        """Whether the largest of all steps were measured, so that no other one is likely to have needed more."""
        return bool(self._largest) and all(largest.batch is None for largest in self._largest.values())

    def measure_largest(self) -> int:
        """Repeat the largest steps that were not measured; returns their number.

        Only after a run is saved: weights and optimizer state change, its recorded times do not.
        """
        left = {largest.number: largest.batch for largest in self._largest.values() if largest.batch is not None}
        usual, self._step.clock = self._step.clock, StepClock(self._step.precision.device)
        try:
            for number, batch in left.items():
                with quiet_profiler(), measure_peak(self._step, batch) as peak:
                    self._step.run(batch)
                self._note(number, peak.bytes)
        finally:
            self._step.clock = usual
        self._largest = {measure: replace(largest, batch=None) for measure, largest in self._largest.items()}
        return len(left)

    def describe(self) -> str:
        """'allocated in step 4, the most of those measured'."""
        if self.at_step is None:
            return "not measured: no step was"
        of = "all steps" if self.is_of_all_steps else "those measured"
        return f"allocated in step {self.at_step}, the most of {of}"

    def _note(self, number: int, peak_bytes: int) -> None:
        if self.peak_bytes is None or peak_bytes > self.peak_bytes:
            self.peak_bytes, self.at_step = peak_bytes, number


class _Guarded:
    """A context manager whose own failure is kept in `error` instead of being raised: a measurement ends no run."""

    def __init__(self, build: Callable[[], AbstractContextManager[MeasuredPeak]]) -> None:
        self._build = build
        self.value: MeasuredPeak | None = None
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        try:
            self._inner = self._build()
            self.value = self._inner.__enter__()
        except Exception as error:  # of torch's profiler, of whatever kind
            self.error = error
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Errors of the step itself are passed on."""
        if self.value is None:
            return
        try:
            self._inner.__exit__(kind, error, trace)
        except Exception as own:
            if own is not error:
                self.error = own


def _measure(batch: GlobalBatch) -> Iterator[tuple[_Measure, int]]:
    """How large a step is. From the second micro-batch on gradients exist already, so the first of several is left out,
    and steps with a single one are measured separately."""
    is_only = len(batch.micro_batches) == 1
    for micro_batch in batch.micro_batches[0 if is_only else 1 :]:
        yield ("tokens", is_only), micro_batch.tokens
        if micro_batch.decoder_ids is not None:
            yield ("targets", is_only), micro_batch.decoder_ids.numel()
        # Of tokens that attend to each other within an example, source and target taken as one sequence.
        if micro_batch.source_lengths is None:  # padded to the longest
            yield ("pairs", is_only), micro_batch.tokens**2 // micro_batch.examples
        else:
            targets = micro_batch.target_lengths or (0,) * micro_batch.examples
            both = zip(micro_batch.source_lengths, targets, strict=True)
            yield ("pairs", is_only), sum((source + target) ** 2 for source, target in both)


@dataclass(frozen=True)
class PredictionOutcome:
    """Predicted and measured, as in the manifest."""

    predicted_peak_bytes: int | None
    measured_peak_bytes: int | None
    measured_peak_is: str  # of what, and of which steps
    resident_growth_bytes: int | None  # includes evaluation and what glibc keeps; less what planning freed
    predicted_step_seconds: float | None
    measured_step_seconds: float | None
    predicted_parts: dict[str, int] = field(default_factory=dict)
    peak_is_of_all_steps: bool = False  # measured; on a CPU a few steps are watched, and others may have needed more
    predicted_evaluation_bytes: int | None = None  # at the peak of an evaluation
    predicted_evaluation_seconds: float | None = None  # of one
    measured_evaluation_seconds: float | None = None  # of a usual one, scoring included
    gpu: str | None = None  # as plans name it; None on a CPU

    @property
    def event(self) -> records.PredictionEvent:
        return records.PredictionEvent(
            self.predicted_peak_bytes,
            self.measured_peak_bytes,
            self.measured_peak_is,
            self.predicted_step_seconds,
            self.measured_step_seconds,
            self.predicted_evaluation_seconds,
            self.measured_evaluation_seconds,
            self.gpu,
        )

    def list_ratios(self) -> dict[str, float]:
        """Measured over predicted, of what is kept of a run besides its time per step."""
        pairs = {
            "peak_bytes_ratio": (self.measured_peak_bytes, self.predicted_peak_bytes),
            "evaluation_seconds_ratio": (self.measured_evaluation_seconds, self.predicted_evaluation_seconds),
        }
        return {name: measured / predicted for name, (measured, predicted) in pairs.items() if measured and predicted}


def compare_with_measured(
    prediction: RunPrediction,
    device: torch.device,
    peak: PeakObserver,
    *,
    before_bytes: int,
    step_seconds: float | None,
    evaluation_seconds: float | None = None,
) -> PredictionOutcome:
    """Predicted and measured. `before_bytes` is what the process used before its model was loaded."""
    outcome = before_the_first_step(prediction)
    if device.type == "cuda":
        outcome = replace(outcome, gpu=prediction.device)
        if outcome.predicted_peak_bytes is not None:  # as it is measured: of the whole run, evaluations included
            highest_bytes = max(outcome.predicted_peak_bytes, outcome.predicted_evaluation_bytes or 0)
            outcome = replace(outcome, predicted_peak_bytes=highest_bytes)
        measured_bytes: int | None = torch.cuda.max_memory_reserved(device)
        measured_is = "reserved by torch's allocator, whole run"
    else:
        measured_bytes, measured_is = peak.peak_bytes, peak.describe()
    return replace(
        outcome,
        measured_evaluation_seconds=evaluation_seconds,
        measured_peak_bytes=measured_bytes,
        measured_peak_is=measured_is,
        resident_growth_bytes=read_peak_bytes(os.getpid()) - before_bytes,
        measured_step_seconds=step_seconds,
        peak_is_of_all_steps=device.type == "cuda" or peak.is_of_all_steps,
    )


def before_the_first_step(prediction: RunPrediction) -> PredictionOutcome:
    """Nothing measured yet: what stays in the manifest of a run that is killed."""
    return PredictionOutcome(
        predicted_peak_bytes=prediction.predicted_peak_bytes,
        predicted_evaluation_bytes=prediction.predicted_evaluation_bytes,
        predicted_evaluation_seconds=prediction.predicted_evaluation_seconds,
        measured_peak_bytes=None,
        measured_peak_is="not measured: the run has not ended",
        resident_growth_bytes=None,
        predicted_step_seconds=prediction.predicted_step_seconds,
        measured_step_seconds=None,
        predicted_parts=prediction.predicted_parts,
    )


_WIDTH, _HEADS, _INNER, _ROWS, _TOKENS = 128, 4, 512, 4, 64
_SHARE = 0.05  # of a step's time is spent on it: several repeats where steps are long


class CalibrationWorkload(Observer):
    def __init__(self) -> None:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # training's own RNG state is unchanged
            torch.manual_seed(0)
            self._layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, _INNER, dropout=0.0, batch_first=True)
            self._states = torch.randn(_ROWS, _TOKENS, _WIDTH)
        self._weights = list(self._layer.parameters())

    def measure_between_steps(self, step_seconds: float) -> float:
        """Seconds of one run, the mean over as many as fit the share of a step.

        The first one is not timed, because the caches are full of the step's data, more so after a larger step.
        """
        self._run()
        started, runs = time.perf_counter(), 0
        while runs == 0 or time.perf_counter() - started < _SHARE * step_seconds:
            self._run()
            runs += 1
        return (time.perf_counter() - started) / runs

    def _run(self) -> None:
        torch.autograd.grad(self._layer(self._states).sum(), self._weights)


def build_calibration_workload(device: torch.device, processes: int) -> list[CalibrationWorkload]:
    """In trials of a comparison. Several processes would disturb each other, and GPUs are not shared."""
    wanted = os.environ.get(CALIBRATED) and device.type == "cpu" and processes == 1
    return [CalibrationWorkload()] if wanted else []
