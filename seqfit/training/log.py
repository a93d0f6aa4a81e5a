"""The records of steps, read from the device one step late, with tokens/s and MFU (model FLOPs utilisation).

    step 10 launched     the losses since record 5 are queued for a copy to the host, behind step 10
    step 11 launched     the host waits for that copy, if it must, and writes record 10; the device runs step 11

So the device never waits for the host. On a CPU a step is done when it returns, and the order is the same. A NaN or Inf
loss is found one step late, too, but before an evaluation or the end, because both write first: `check` sees every step
before its record is written. The seconds of phases (seqfit.step.clock) arrive the same way.

FLOPs are those that the model needs on real tokens (seqfit.model.flops), MFU is their share of the device's peak rate.
Either may be unknown; the reason is then in the manifest.

    a step of 2.0e12 FLOPs in 0.5 s   ->   4.0e12 FLOP/s; on a GPU with a peak of 71e12 an MFU of 5.6%
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from seqfit.data import GlobalBatch, Loader
from seqfit.hardware import match_card
from seqfit.model import ModelShape, read_model_shape
from seqfit.rundir import RunWriter, records
from seqfit.step import ClockMoment, Precision, StepClock, StepOutcome
from seqfit.system import read_queued_seconds
from seqfit.telemetry import read_resident_bytes
from seqfit.training.setup import TrainingSetup
from seqfit.training.view import TrainingView


@dataclass(frozen=True)
class StepWork:
    loader: Loader | None = None
    shape: ModelShape | None = None
    peak_flops_per_second: float | None = None
    absent: dict[str, str] = field(default_factory=dict)  # field of a step's record -> why it has no value

    def count(self, batch: GlobalBatch) -> int | None:
        if self.shape is None or self.loader is None:
            return None
        return self.shape.training_flops(*self.loader.lengths(batch))


def describe_step_work(setup: TrainingSetup) -> StepWork:
    shape, reason = read_model_shape(setup.generator.model.config.to_dict())
    if not all(parameter.requires_grad for parameter in setup.step.model.parameters()):
        shape, reason = None, "the backward of adapters and frozen parts is not twice the forward"
    peak, unknown = find_peak_rate(setup.step.precision)
    absent = {"model_flops_per_second": reason} if shape is None else {}
    absent |= {"mfu": unknown} if peak is None else {}
    return StepWork(setup.loader, shape, None if peak is None else peak * setup.world.size, absent)


def find_peak_rate(precision: Precision) -> tuple[float | None, str]:
    """The device's peak FLOP/s in this precision, or None and the reason."""
    if precision.device.type != "cuda":
        return None, "the peak rate of a CPU is unknown"
    properties = torch.cuda.get_device_properties(precision.device)
    card = match_card(properties.name, properties.total_memory)
    if card is None:
        return None, f"{properties.name} is not in the table of GPUs"
    uses_tf32 = precision.name == "fp32" and torch.get_float32_matmul_precision() != "highest"
    units = "tf32" if uses_tf32 and card.has_tf32 else precision.name
    rate = {str(name): rate for name, rate in card.flops_per_second.items()}.get(units)
    return rate, "" if rate is not None else f"the table of GPUs has no {units} rate for {card.name}"


@dataclass
class _Window:
    """What is summed up between two records."""

    started: ClockMoment
    queued_before: float | None = None  # seconds that the thread had waited for a core until then
    before: int = 0  # steps before its first one
    checked: int = 0  # how many of its steps were checked before their record
    left_out_seconds: float = 0.0  # evaluations
    tokens: int = 0
    padded_tokens: int = 0
    flops: list[int | None] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)  # on the device
    marks: list[torch.Tensor] = field(default_factory=list)  # NaN or Inf; on the device
    terms: list[int] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class SeenStep:
    """A step whose loss has arrived on the host."""

    step: int
    loss: float
    is_marked: bool  # its loss or gradient is NaN or Inf
    rows: list[int]


@dataclass(frozen=True)
class _Reading:
    """A record in progress: what the host knows already, and tensors that may still be copied."""

    step: int
    batch: GlobalBatch
    learning_rate: float | None
    memory_bytes: int
    time: float
    window: _Window
    phase_seconds: dict[str, float]
    losses: torch.Tensor
    marks: torch.Tensor
    gradient_norm: torch.Tensor | None
    arrived: ClockMoment
    queued_seconds: float | None
    calibration_seconds: float | None


class StepLog:
    def __init__(
        self,
        writer: RunWriter,
        view: TrainingView,
        clock: StepClock,
        work: StepWork,
        check: Callable[[Sequence[SeenStep]], None],
        calibrations: Sequence[Callable[[float], float | None]] = (),
    ) -> None:
        self._calibrations = calibrations
        self._writer = writer
        self._view = view
        self._clock = clock
        self._work = work
        self._check = check
        self._device = clock.device
        self._reading: _Reading | None = None
        self._is_open = False
        self._window = _Window(ClockMoment.mark(self._device))

    def __enter__(self) -> Self:
        self._window.started = ClockMoment.mark(self._device)
        self._window.queued_before = self._read_queued()
        self._is_open = True
        return self

    def __exit__(self, *_error: object) -> None:
        """Also after an error: the record of the completed steps is written."""
        self._is_open = False
        self.write()

    def observe(self, outcome: StepOutcome, batch: GlobalBatch) -> None:
        self._window.tokens += batch.source_tokens + batch.target_tokens
        self._window.padded_tokens += batch.padded_tokens
        self._window.flops.append(self._work.count(batch))
        self._window.losses.append(outcome.loss)
        self._window.marks.append(outcome.not_finite)
        self._window.terms.append(batch.loss_terms)
        self._window.rows.append(batch.rows.tolist())

    def read_state(self) -> dict[str, Any]:
        """What was summed up since the last record, for a snapshot. Waits for the device."""
        window, now = self._window, ClockMoment.mark(self._device)
        now.wait()
        return {
            "before": window.before,
            "seconds": now.seconds_since(window.started) - window.left_out_seconds,
            "losses": [value if math.isfinite(value) else None for value in map(float, window.losses)],
            "marks": [float(mark) for mark in window.marks],
            "rows": list(window.rows),
            "terms": list(window.terms),
            "tokens": window.tokens,
            "padded_tokens": window.padded_tokens,
            "flops": list(window.flops),
        }

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self._window.losses = [self._to_tensor(math.nan if loss is None else loss) for loss in state["losses"]]
        self._window.marks = [self._to_tensor(mark) for mark in state["marks"]]
        self._window.rows = list(state["rows"])
        self._window.before, self._window.checked = int(state["before"]), len(state["rows"])
        self._window.terms, self._window.flops = list(state["terms"]), list(state["flops"])
        self._window.tokens, self._window.padded_tokens = state["tokens"], state["padded_tokens"]
        self._window.left_out_seconds = -float(state["seconds"])  # spent before this window's clock started

    def _to_tensor(self, value: float) -> torch.Tensor:
        return torch.tensor(value, device=self._device)

    def leave_out(self, seconds: float) -> None:
        """Exclude an evaluation from the step time; before the first step there is none to exclude it from."""
        if self._is_open:
            self._window.left_out_seconds += seconds

    def read(self, step: int, batch: GlobalBatch, outcome: StepOutcome, learning_rate: float | None) -> None:
        """Start the record of the steps observed so far, without waiting for them."""
        window = self._window
        losses, marks = _send(torch.stack(window.losses)), _send(torch.stack(window.marks))
        norm = None if outcome.gradient_norm is None else _send(outcome.gradient_norm)
        arrived = ClockMoment.mark(self._device)
        on_gpu = self._device.type == "cuda"  # there the peak that torch has allocated, on a CPU what is resident now
        memory = torch.cuda.max_memory_allocated(self._device) if on_gpu else read_resident_bytes()
        phases = self._clock.take()
        now = time.time()
        queued, calibration, begins = None, None, arrived
        queued_until = self._read_queued()
        if queued_until is not None and window.queued_before is not None and not window.left_out_seconds:
            # Mean per step; None with an evaluation in the window, whose share is unknown.
            queued = (queued_until - window.queued_before) / len(window.losses)
        for measure in self._calibrations:
            seconds = measure(arrived.seconds_since(window.started) / len(window.losses))
            if seconds is not None:
                calibration = seconds
                begins = ClockMoment.mark(self._device)  # the workload is not part of a step
        self._reading = _Reading(
            step, batch, learning_rate, memory, now, window, phases, losses, marks, norm, arrived, queued, calibration
        )
        self._window = _Window(begins, self._read_queued(), before=step)

    def _read_queued(self) -> float | None:
        """None on a GPU, where a step does not wait for the thread's core."""
        return read_queued_seconds() if self._device.type == "cpu" else None

    def check_open(self) -> None:
        """Check the steps that have no record yet, before anything of them is saved. Waits for the device."""
        window = self._window
        if window.checked < len(window.losses):
            self._check(_see(window, torch.stack(window.losses), torch.stack(window.marks)))
            window.checked = len(window.losses)

    def write(self) -> None:
        """Write the record in progress, if any. Waits until the device has finished its step."""
        if self._reading is None:
            return
        reading, self._reading = self._reading, None
        reading.arrived.wait()
        self._clock.settle()
        self._check(_see(reading.window, reading.losses, reading.marks))
        record = _finish(reading, self._work.peak_flops_per_second)
        self._writer.step(record)
        self._view.step(record)

    def wait(self) -> None:
        """Until the device is idle, so that what follows can be timed on its own."""
        ClockMoment.mark(self._device).wait()


def _see(window: _Window, losses: torch.Tensor, marks: torch.Tensor) -> list[SeenStep]:
    """The steps of a window that were not checked yet."""
    seen = zip(losses.tolist(), marks.tolist(), window.rows, strict=True)
    steps = [SeenStep(window.before + n, loss, bool(mark), rows) for n, (loss, mark, rows) in enumerate(seen, 1)]
    return steps[window.checked :]


def _send(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host, which a GPU fills (in pinned memory) later; on a CPU the tensor itself."""
    return tensor.detach().to("cpu", non_blocking=True)


def _finish(reading: _Reading, peak_flops_per_second: float | None) -> records.StepRecord:
    window, batch = reading.window, reading.batch
    losses = reading.losses.double()
    weights = torch.tensor(window.terms, dtype=torch.float64) * losses.isfinite()  # skipped steps do not count
    seconds = reading.arrived.seconds_since(window.started) - window.left_out_seconds
    flops = [count for count in window.flops if count is not None]
    rate = sum(flops) / seconds if flops else None
    return records.StepRecord(
        step=reading.step,
        epoch=round(batch.epoch, 4),
        loss=float((losses.nan_to_num() * weights).sum() / weights.sum()),
        learning_rate=reading.learning_rate,
        gradient_norm=None if reading.gradient_norm is None else float(reading.gradient_norm),
        examples=batch.examples,
        source_tokens=batch.source_tokens,
        target_tokens=batch.target_tokens,
        padded_tokens=batch.padded_tokens,
        micro_batches=len(batch.micro_batches),
        step_seconds=seconds / len(window.losses),
        tokens_per_second=window.tokens / seconds,
        memory_bytes=reading.memory_bytes,
        time=reading.time,
        phase_seconds={name: round(spent, 6) for name, spent in reading.phase_seconds.items()},
        padding_share=window.padded_tokens / (window.tokens + window.padded_tokens),
        model_flops_per_second=rate,
        mfu=rate / peak_flops_per_second if rate and peak_flops_per_second else None,
        queued_seconds=reading.queued_seconds,
        calibration_seconds=reading.calibration_seconds,
    )
