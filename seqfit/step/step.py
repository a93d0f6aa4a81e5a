"""One optimizer step over a global batch: micro-batches -> normalised loss -> clip -> update. No I/O, no host sync.

The divisor (target tokens of the whole global batch) is counted on the host before the first forward, so every
micro-batch contributes its exact share and the gradient does not depend on how the batch was split.

`ParallelStrategy` runs the micro-batches and makes the update. As it is, it is a single process; DDP, FSDP2, pipeline
and DeepSpeed are subclasses (seqfit.parallel) that say what is communicated and when. Every rank then has the gradient
of the whole global batch (or its shard of it), the same loss and the same norm, and makes the same update.

    strategy         each rank holds       communicated                            a rank with too few micro-batches
    single process   the model             nothing
    ddp              the model             gradients, once per step, in the last   has a dummy micro-batch
                                           backward                                if it has none
    pipeline         some of the blocks    states, from stage to stage             all run all micro-batches
    fsdp, zero       1/n of every weight   weights and gradients, block by block   has as many as the others

A step that fails reports how far it got: until the update begins, no weight has moved and it can be repeated.

A loss or a gradient that is NaN or Inf never reaches the weights. Fused AdamW is given a flag on the device and does
nothing where it is set. Other optimizers take no flag: where the recipe says what to do about non-finite values, the
host reads it before the update, which waits for the device; where it doesn't, the run ends at the next record anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from seqfit.data import GlobalBatch, MicroBatch
from seqfit.model import LossModel
from seqfit.rundir import records
from seqfit.step.clock import StepClock
from seqfit.step.optimizers import InBackward, allocate_state, read_state, restore_values, set_learning_rate
from seqfit.step.precision import Precision

_CLIP_EPSILON = 1e-6  # torch's own, so that clipping in the optimizer gives the same result


@dataclass(frozen=True)
class StepOutcome:
    """What a step leaves behind, still on the device: reading it waits for the device."""

    loss: torch.Tensor  # mean over the global batch's target tokens
    gradient_norm: torch.Tensor | None  # before clipping; None where nothing is clipped
    not_finite: torch.Tensor  # 1.0 where the loss or the norm is NaN or Inf

    @classmethod
    def check(cls, loss: torch.Tensor, norm: torch.Tensor | None, *, checked: torch.Tensor | None) -> StepOutcome:
        """`checked` is the norm that must be finite, which is not always the one to report."""
        finite = loss.isfinite() if checked is None else loss.isfinite() & checked.isfinite()
        return cls(loss, norm, finite.logical_not().to(torch.float32))


class TrainStep:
    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        clip_norm: float | None,
        *,
        parallel: ParallelStrategy | None = None,
        in_backward: bool = False,
        asks_host: bool = False,
    ) -> None:
        self.model = model
        self.parallel = parallel or ParallelStrategy(cast(LossModel, model))
        self.optimizer = optimizer
        self.precision = precision
        self.clip_norm = clip_norm
        self.clock = StepClock(precision.device)
        self._in_backward = InBackward(optimizer) if in_backward else None
        self.scaler = torch.amp.GradScaler(precision.device.type) if precision.needs_scaler else None
        fused = bool(optimizer.defaults.get("fused"))
        self._flags_optimizer = fused and not in_backward and self.scaler is None and not self.parallel.has_shards
        self._asks_host = asks_host and not in_backward and not self._flags_optimizer and self.scaler is None
        self.phase: records.Phase = "forward"  # where a step failed
        self.micro_batch = 0  # and in which micro-batch
        self.is_updating = False
        self.updates = 0  # so far

    def run(self, batch: GlobalBatch) -> StepOutcome:
        loss = self.parallel.run_batch(self, batch)
        self.parallel.reduce_loss(self, loss)
        with self.enter("optimizer"):
            outcome = self.parallel.update(self, loss)
        self.is_updating = False
        self.updates += 1
        return outcome

    def set_learning_rate(self, rate: float) -> None:
        set_learning_rate(self.optimizer, rate)

    def enter(self, phase: records.Phase) -> AbstractContextManager[None]:
        self.phase = phase
        return self.clock.phase(phase)

    def begin_micro_batch(self, number: int, *, is_last: bool) -> None:
        self.micro_batch = number
        if self._in_backward is not None:
            self._in_backward.arm(last=is_last)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """For the backward: multiplied by fp16's loss scaler."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    @property
    def is_half_updated(self) -> bool:
        """After a step that failed: whether some weights may be updated already."""
        return self.is_updating or (self._in_backward is not None and self._in_backward.updated > 0)

    @property
    def updates_in_backward(self) -> bool:
        return self._in_backward is not None

    def drop(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.is_updating = False
        if self._in_backward is not None:
            self._in_backward.updated = 0
        if self.scaler is not None:  # it remembers having unscaled these gradients
            state = self.scaler.state_dict()
            self.scaler = torch.amp.GradScaler(self.precision.device.type)
            self.scaler.load_state_dict(state)

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        usual = self.precision
        self.precision = replace(usual, name="fp32")
        try:
            yield
        finally:
            self.precision = usual

    def clip_and_update(self, loss: torch.Tensor) -> StepOutcome:
        """Clip the gradient and update the weights, unless the loss or the norm is non-finite."""
        norm = self._clip()
        checked = None if self.scaler is not None else norm  # a scaler tries large ones
        outcome = StepOutcome.check(loss, norm, checked=checked)
        self.is_updating = True
        if self._in_backward is not None:
            self._in_backward.finish()
        elif self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif not (self._asks_host and bool(outcome.not_finite)):
            if self._flags_optimizer:
                self.optimizer.found_inf = outcome.not_finite  # type: ignore[attr-defined]
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return outcome

    def _clip(self) -> torch.Tensor | None:
        """The gradient norm before clipping, where it is clipped.

        Fused AdamW divides gradients as it reads them, which saves one pass over all of them.
        """
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.clip_norm is None or self._in_backward is not None:
            return None
        trained = [weight for weight in self.model.parameters() if weight.grad is not None]
        norm = self.parallel.total_norm([weight.grad for weight in trained if weight.grad is not None])
        if self._flags_optimizer and norm.dtype == torch.float32:  # its kernel takes the divisor in this type
            divisor = ((norm + _CLIP_EPSILON) / self.clip_norm).clamp(min=1.0)
            self.optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        else:
            nn.utils.clip_grads_with_norm_(trained, self.clip_norm, norm)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


class ParallelStrategy:
    """How a process takes part in a step; as it is, a single process, which communicates with nobody.

    `before_communication` is called once per step, before the first collective: it raises where another rank has given
    the step up.
    """

    name = "single process"
    lockstep = False  # whether every micro-batch contains collectives
    splits_batches = True  # whether each rank has its own micro-batches
    saves_shards = False  # whether every rank writes its own part of a snapshot
    has_shards = False  # whether weights are torch's DTensors
    gradient_factor = 1  # of losses before the backward: torch takes means over ranks, a step needs sums
    optimizer: torch.optim.Optimizer | None = None  # where the strategy brings its own
    engine_backward: Callable[[torch.Tensor], None] | None = None  # where it is not torch's

    def __init__(self, model: LossModel, before_communication: Callable[[], None] | None = None) -> None:
        self.model = model
        self.module: nn.Module = model  # gives the loss of a micro-batch
        self.before_communication = before_communication or (lambda: None)

    @property
    def trained(self) -> nn.Module:
        """What the optimizer updates on this rank."""
        return self.model

    def run_batch(self, step: TrainStep, batch: GlobalBatch) -> torch.Tensor:
        """Forward and backward of this rank's micro-batches; returns their share of the loss."""
        loss = torch.zeros((), device=step.precision.device)
        last = len(batch.micro_batches) - 1
        for number, micro_batch in enumerate(batch.micro_batches):
            step.begin_micro_batch(number, is_last=number == last)
            with step.enter("host_to_device"):
                moved = micro_batch.to(step.precision.device)
            layout = self.model.running(moved.source_lengths, moved.target_lengths)  # also of recomputed forwards
            with self.communication(is_first=number == 0, is_last=number == last), layout:
                with step.enter("forward"), step.precision.autocast():
                    share = micro_batch_loss_sum(self.module, moved) / batch.loss_terms
                    share = share * 0.0 if moved.is_dummy else share
                with step.enter("backward"):
                    summed = share * self.gradient_factor if self.gradient_factor > 1 else share
                    (self.engine_backward or torch.Tensor.backward)(step.scaled(summed))
            loss += share.detach()
        return loss

    def communication(self, *, is_first: bool, is_last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of a micro-batch, the first or last of its step."""
        return nullcontext()

    def reduce_loss(self, step: TrainStep, loss: torch.Tensor) -> None:
        """Sum it over all ranks, in place."""

    def update(self, step: TrainStep, loss: torch.Tensor) -> StepOutcome:
        return step.clip_and_update(loss)

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return nn.utils.get_total_norm(gradients)

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight of the model by its name, whole, one after the other. A collective: all ranks call it."""
        for name, weight in self.model.model.named_parameters():
            yield name, weight.detach()

    def allocate_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Before the first step, so that an update never allocates."""
        allocate_state(optimizer)

    def read_state(
        self, optimizer: torch.optim.Optimizer, model: nn.Module
    ) -> tuple[dict[str, torch.Tensor], dict[str, float | None]]:
        return read_state(optimizer, model)

    def restore_values(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, values: Mapping[str, float | None]
    ) -> None:
        restore_values(optimizer, model, values)


def micro_batch_loss_sum(model: nn.Module, batch: MicroBatch) -> torch.Tensor:
    loss: torch.Tensor = model(
        batch.source_ids, batch.labels, batch.decoder_ids, batch.source_mask, counted_rows=batch.target_tokens
    )
    return loss
