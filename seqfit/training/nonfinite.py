"""What to do about numbers that are none: find out where they begin, leave the step out, or make it again in fp32.

Steps mark such numbers on the device (`StepOutcome.not_finite`); the marks are read with the records, and before an
evaluation or a snapshot. Fused AdamW passes over such a step, so to run its batch again with the weights of that moment
shows which module makes the first inf or NaN; other optimizers may have spoilt the weights, and then those are named.

    step 17   loss nan   ->   "encoder.block.3.layer.1.DenseReluDense.wo makes the first number that is none (inf)"
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from seqfit.data.loader import GlobalBatch, Loader
from seqfit.errors import TrainingFailed, format_error
from seqfit.model.loss import LossModel
from seqfit.rundir.events import LossSpikeEvent, NonFiniteEvent
from seqfit.rundir.writer import RunWriter
from seqfit.step.step import StepOutcome, TrainStep, micro_batch_loss_sum
from seqfit.training.log import SeenStep

NOWHERE = "no module makes one when the batch is run again"
_SKIPPED_IN_A_ROW = 10  # more are no accident
_REMEMBERED = 64  # losses that a new one is compared with
_LEAST = 16  # before that nothing is called a spike
_DEVIATIONS = 8  # of the median deviation: losses of batches scatter
_RATIO = 1.5  # and it must stand out by this much


class NonFiniteHandler:
    """Follows the recipe's policy on steps whose numbers are none, and notes losses that stand out."""

    def __init__(self, step: TrainStep, loader: Loader, policy: str, writer: RunWriter) -> None:
        self._step = step
        self._loader = loader
        self._policy = policy
        self._writer = writer
        self._spikes = SpikeDetector()
        self._in_a_row = 0

    def read_state(self) -> dict[str, Any]:
        """What it remembers of the steps so far, for a snapshot."""
        return {"in_a_row": self._in_a_row, "losses": list(self._spikes.before)}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self._in_a_row = state["in_a_row"]
        self._spikes.before.clear()
        self._spikes.before.extend(state["losses"])

    def judge(self, steps: Sequence[SeenStep]) -> None:
        """Of steps that were made: raises where training can't go on."""
        for seen in steps:
            if seen.is_marked or not math.isfinite(seen.loss):
                self._in_a_row += 1
                self._judge_bad(seen)
                continue
            self._in_a_row = 0
            if self._spikes.is_spike(seen.loss):
                self._writer.event(LossSpikeEvent(seen.step, seen.loss, self._spikes.usual, seen.rows))

    def wants_more_precision(self, number: int, outcome: StepOutcome) -> bool:
        """Whether a step is to be made once more, in fp32, for the recipe says so. Waits for the device."""
        name = self._step.precision.name
        if self._policy != "higher-precision-retry" or name == "fp32" or not bool(outcome.not_finite):
            return False
        self._writer.event(NonFiniteEvent(number, "retried", precision=name))
        return True

    def _judge_bad(self, seen: SeenStep) -> None:
        if self._policy == "skip" and self._in_a_row < _SKIPPED_IN_A_ROW:
            values = {"gradient norm": "non-finite"} if math.isfinite(seen.loss) else {"loss": str(seen.loss)}
            self._writer.event(NonFiniteEvent(seen.step, "skipped", values, seen.rows))
            return
        where = self._find_where(seen)
        raise TrainingFailed(explain_nan(seen.step, seen.loss, self._step.precision.name, where))

    def _find_where(self, seen: SeenStep) -> str | None:
        """Each process runs its share of the batch again; with a part of every weight none can, without the others."""
        way = self._step.way
        if way.saves_shards:
            return None
        found = way.world.all_gather(find_first_overflow(self._step, self._loader.load(seen.rows)))
        return next((where for where in found if where != NOWHERE), NOWHERE)


class _Found(Exception):
    """Ends a forward early."""


def find_first_overflow(step: TrainStep, batch: GlobalBatch) -> str:
    """In words: which weight, module or gradient of a batch is the first that is no number."""
    for name, weight in step.model.named_parameters():
        if not bool(weight.isfinite().all()):
            return f"the weight {_short(name)} has numbers that are none already"
    assert isinstance(step.model, LossModel)  # no process has one whole where there are stages
    found: list[str] = []
    training = step.model.training
    try:
        for micro_batch in batch.micro_batches:
            moved = micro_batch.to(step.precision.device)
            with step.model.running(moved.source_lengths, moved.target_lengths), _watched(step.model, found):
                with step.precision.autocast():
                    loss = micro_batch_loss_sum(step.model, moved)
                loss.backward()
            for name, weight in step.model.named_parameters():
                if weight.grad is not None and not bool(weight.grad.isfinite().all()):
                    return f"the gradient of {_short(name)} has numbers that are none"
    except _Found:
        return found[0]
    finally:
        step.drop()
        step.model.train(training)
    return NOWHERE


@contextmanager
def _watched(model: nn.Module, found: list[str]) -> Iterator[None]:
    handles = [
        module.register_forward_hook(_watch(_short(name), found))
        for name, module in model.named_modules()
        if not any(module.children())
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _watch(name: str, found: list[str]) -> Any:
    def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.is_floating_point() and not bool(output.isfinite().all()):
            kind = "nan" if bool(output.isnan().any()) else "inf"
            found.append(f"{name} makes the first number that is none ({kind})")
            raise _Found

    return look


def _short(name: str) -> str:
    """Without the wrapper's own prefix."""
    return name.removeprefix("model.")


class SpikeDetector:
    """Tells a loss that stands out from those before it."""

    def __init__(self) -> None:
        self.before: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def usual(self) -> float:
        """The median of those before."""
        return statistics.median(self.before)

    def is_spike(self, loss: float) -> bool:
        """Whether it is far above what its predecessors scatter by; then it is not remembered."""
        if not math.isfinite(loss):
            return False
        if len(self.before) >= _LEAST:
            middle = self.usual
            spread = statistics.median(abs(value - middle) for value in self.before)
            if loss > middle + _DEVIATIONS * spread and loss > _RATIO * middle:
                return True
        self.before.append(loss)
        return False


def explain_nan(step: int, loss: float, precision: str, where: str | None = None) -> str:
    """What to do about a loss or a gradient that is no number."""
    change = "Lower train.learning_rate, or set train.schedule.warmup_steps"
    if precision == "fp16":
        change = "Set strategy.precision=fp32 or bf16: T5's feed-forward layers overflow in fp16"
    return format_error(
        f"the loss is {loss} at step {step} ({precision}){'' if where is None else ': ' + where}",
        "training can't go on from a loss or a gradient that is no number",
        change,
    )
