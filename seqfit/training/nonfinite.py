"""NaN and Inf (non-finite values): find out where they start, skip the step, or repeat it in fp32.

Steps mark them on the device (`StepOutcome.not_finite`); the marks are read with the records, and before an evaluation
or a snapshot. Fused AdamW skips such a step, so running its batch again with the same weights shows which module
produces the first one; other optimizers may have corrupted the weights, and then those are named.

    step 17   loss nan   ->   "encoder.block.3.layer.1.DenseReluDense.wo produces the first inf"
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from seqfit.data import GlobalBatch, Loader
from seqfit.errors import TrainingFailed
from seqfit.model import LossModel
from seqfit.parallel import World
from seqfit.rundir import RunWriter, records
from seqfit.step import StepOutcome, TrainStep, micro_batch_loss_sum
from seqfit.training.log import SeenStep

NOWHERE = "no module produces one when the batch is run again"
_SKIPPED_IN_A_ROW = 10  # from this many on the run ends
_REMEMBERED = 64  # losses that a new one is compared with
_LEAST = 16  # before that nothing is called a spike
_DEVIATIONS = 8  # of the median deviation: losses of batches scatter
_RATIO = 1.5  # and it must stand out by this much


class NonFiniteHandler:
    """Applies the recipe's policy on non-finite steps, and records loss spikes."""

    def __init__(self, step: TrainStep, loader: Loader, world: World, policy: str, writer: RunWriter) -> None:
        self._step = step
        self._loader = loader
        self._world = world
        self._policy = policy
        self._writer = writer
        self._spikes = SpikeDetector()
        self._in_a_row = 0

    def read_state(self) -> dict[str, Any]:
        return {"in_a_row": self._in_a_row, "losses": list(self._spikes.before)}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self._in_a_row = state["in_a_row"]
        self._spikes.before.clear()
        self._spikes.before.extend(state["losses"])

    def check(self, steps: Sequence[SeenStep]) -> None:
        """Of completed steps: raises where training can't continue."""
        for seen in steps:
            if not seen.is_marked and math.isfinite(seen.loss):
                self._in_a_row = 0
                if self._spikes.is_spike(seen.loss):
                    self._writer.event(records.LossSpikeEvent(seen.step, seen.loss, self._spikes.usual, seen.rows))
                continue
            self._in_a_row += 1
            if self._policy == "skip" and self._in_a_row < _SKIPPED_IN_A_ROW:
                values = {"gradient norm": "non-finite"} if math.isfinite(seen.loss) else {"loss": str(seen.loss)}
                self._writer.event(records.NonFiniteEvent(seen.step, "skipped", values, seen.rows))
                continue
            where = None
            if not self._step.parallel.saves_shards:  # each rank runs its share again, with whole weights
                found = self._world.all_gather(find_first_overflow(self._step, self._loader.load(seen.rows)))
                where = next((place for place in found if place != NOWHERE), NOWHERE)
            raise TrainingFailed(*explain_nan(seen.step, seen.loss, self._step.precision.name, where))

    def should_retry(self, number: int, outcome: StepOutcome) -> bool:
        """Whether a step is to be repeated in fp32, because the recipe says so. Waits for the device."""
        name = self._step.precision.name
        if self._policy != "higher-precision-retry" or name == "fp32" or not bool(outcome.not_finite):
            return False
        self._writer.event(records.NonFiniteEvent(number, "retried", precision=name))
        return True


class _Found(Exception):
    """Ends a forward early."""


def find_first_overflow(step: TrainStep, batch: GlobalBatch) -> str:
    """Which weight, module or gradient is the first with a NaN or Inf, as a sentence."""
    for name, weight in step.model.named_parameters():
        if not bool(weight.isfinite().all()):
            return f"the weight {_short(name)} is NaN or Inf already"
    assert isinstance(step.model, LossModel)  # pipeline stages save shards, and never get here
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
                    return f"the gradient of {_short(name)} is NaN or Inf"
    except _Found:
        return found[0]
    finally:
        step.drop()
        step.model.train(training)
    return NOWHERE


@contextmanager
def _watched(model: nn.Module, found: list[str]) -> Iterator[None]:
    def check(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.is_floating_point() and not bool(output.isfinite().all()):
            kind = "nan" if bool(output.isnan().any()) else "inf"
            found.append(f"{name} produces the first {kind}")
            raise _Found

    handles = [
        module.register_forward_hook(partial(check, _short(name)))
        for name, module in model.named_modules()
        if not any(module.children())
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _short(name: str) -> str:
    return name.removeprefix("model.")  # of the wrapper


class SpikeDetector:
    def __init__(self) -> None:
        self.before: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def usual(self) -> float:
        return statistics.median(self.before)

    def is_spike(self, loss: float) -> bool:
        """Whether it is far above the spread of its predecessors; a spike is not remembered."""
        if not math.isfinite(loss):
            return False
        if len(self.before) >= _LEAST:
            middle = self.usual
            spread = statistics.median(abs(value - middle) for value in self.before)
            if loss > middle + _DEVIATIONS * spread and loss > _RATIO * middle:
                return True
        self.before.append(loss)
        return False


def explain_nan(step: int, loss: float, precision: str, where: str | None = None) -> tuple[str, str, str]:
    change = "Lower train.learning_rate, or set train.schedule.warmup_steps"
    if precision == "fp16":
        change = "Set strategy.precision=fp32 or bf16: T5's feed-forward layers overflow in fp16"
    return (
        f"the loss is {loss} at step {step} ({precision}){'' if where is None else ': ' + where}",
        "training can't continue from a loss or a gradient that is NaN or Inf",
        change,
    )
