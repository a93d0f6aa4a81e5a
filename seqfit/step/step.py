"""One optimizer step over a global batch: micro-batches -> normalised loss -> clip -> update. No I/O, no host sync.

The divisor (target tokens of the whole global batch) is counted on the host before the first forward, so every
micro-batch contributes its exact share and the gradient does not depend on how the batch was cut.

Of several processes each runs its own micro-batches; a `Way` says what is exchanged and when. Every process then has
the gradient of the whole global batch (or its shard of it), the same loss and the same norm, and makes the same update.

A step that fails says how far it got: until the update begins, no weight has moved and it can be made again.

A loss or a gradient that is no number never reaches the weights. Fused AdamW is told so by a number on the device and
does nothing. Other rules can't be told: where the recipe says what to do about it, the host reads that number before
the update, which waits for the device; where it doesn't, the run ends at the next record anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from seqfit.data.loader import GlobalBatch
from seqfit.data.micro_batch import MicroBatch
from seqfit.model.loss import LossModel
from seqfit.parallel.deepspeed import Zero
from seqfit.parallel.pipeline import Pipeline
from seqfit.parallel.way import Pipelined, Way
from seqfit.rundir.records import Phase
from seqfit.step.clock import StepClock
from seqfit.step.optimizers import InBackward
from seqfit.step.precision import Precision

_CLIP_EPSILON = 1e-6  # torch's own, so that both ways of clipping are one


@dataclass(frozen=True)
class StepOutcome:
    """What a step leaves behind, still on the device: reading it waits for the device."""

    loss: torch.Tensor  # mean over the global batch's target tokens
    gradient_norm: torch.Tensor | None  # before clipping; None where nothing is clipped
    not_finite: torch.Tensor  # 1.0 where the loss or the norm is no number


class TrainStep:
    """Holds what an update needs; calling it makes one."""

    def __init__(
        self,
        model: LossModel | Pipeline,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        clip_norm: float | None,
        *,
        way: Way | None = None,
        in_backward: bool = False,
        asks_host: bool = False,
    ) -> None:
        self.model = model
        self.way = way or Way(cast(LossModel, model))
        self.optimizer = optimizer
        self.precision = precision
        self.clip_norm = clip_norm
        self.clock = StepClock(precision.device)
        self._in_backward = InBackward(optimizer) if in_backward else None
        self.scaler = torch.amp.GradScaler(precision.device.type) if precision.needs_scaler else None
        fused = bool(optimizer.defaults.get("fused"))
        self._tells_optimizer = fused and not in_backward and self.scaler is None and not self.way.has_shards
        self._asks_host = asks_host and not in_backward and not self._tells_optimizer and self.scaler is None
        self.phase: Phase = "forward"  # what a step that failed was doing
        self.micro_batch = 0  # and with which of its micro-batches
        self._is_updating = False
        self.updates = 0  # made so far
        self.before_exchange: Callable[[], None] = _do_nothing  # called once a step, while it can still be given up

    @property
    def is_half_updated(self) -> bool:
        """After a step that failed: whether some weights may have moved."""
        inside = self._in_backward is not None and self._in_backward.updated > 0
        return inside or self._is_updating

    @property
    def updates_in_backward(self) -> bool:
        """Whether weights move before the backward is done."""
        return self._in_backward is not None

    def drop(self) -> None:
        """What a step that failed has left: gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        self._is_updating = False
        if self._in_backward is not None:
            self._in_backward.updated = 0
        if self.scaler is not None:  # which remembers that it has unscaled these gradients
            state = self.scaler.state_dict()
            self.scaler = torch.amp.GradScaler(self.precision.device.type)
            self.scaler.load_state_dict(state)

    def __call__(self, batch: GlobalBatch) -> StepOutcome:
        """One update with the whole global batch."""
        loss = self._run_stages(batch) if isinstance(self.way, Pipelined) else self._accumulate_all(batch)
        if self.way.world.size > 1:
            with self._enter("communication"):
                self.way.world.all_reduce_sum(loss)
        with self._enter("optimizer"):
            norm, not_finite = self._update_by_engine(loss) if isinstance(self.way, Zero) else self._update_here(loss)
        self._is_updating = False
        self.updates += 1
        return StepOutcome(loss, norm, not_finite)

    def _run_stages(self, batch: GlobalBatch) -> torch.Tensor:
        """Forwards and backwards of all micro-batches, which change places: together they are called the backward."""
        assert isinstance(self.way, Pipelined)
        self.micro_batch = 0
        self._agree()
        with self._enter("backward"):
            scale = None if self.scaler is None else self.scaler.scale
            loss = self.way.pipeline.run(batch.micro_batches, batch.loss_terms, self.precision.autocast, scale)
        return loss.float()  # the last stage's may be of another type than the others' zero

    def _accumulate_all(self, batch: GlobalBatch) -> torch.Tensor:
        """The gradient of this process's micro-batches; returns their share of the loss."""
        loss = torch.zeros((), device=self.precision.device)
        last = len(batch.micro_batches) - 1
        for number, micro_batch in enumerate(batch.micro_batches):
            self.micro_batch = number
            if self._in_backward is not None:
                self._in_backward.arm(last=number == last)
            with self._enter("host_to_device"):
                moved = micro_batch.to(self.precision.device)
            with self.way.exchanging(first=number == 0, last=number == last, agree=self._agree):
                loss += self._accumulate(moved, batch.loss_terms)
        return loss

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Steps inside compute in fp32."""
        usual = self.precision
        self.precision = replace(usual, name="fp32")
        try:
            yield
        finally:
            self.precision = usual

    def _accumulate(self, batch: MicroBatch, loss_terms: int) -> torch.Tensor:
        """Add a micro-batch's share of the gradient; returns its share of the loss."""
        with self.way.model.running(batch.source_lengths, batch.target_lengths):
            with self._enter("forward"), self.precision.autocast():
                loss = micro_batch_loss_sum(self.way.called, batch) / loss_terms
                loss = loss * 0.0 if batch.is_dummy else loss
            with self._enter("backward"):
                summed = loss * self.way.factor if self.way.factor > 1 else loss
                self.way.backward(summed if self.scaler is None else self.scaler.scale(summed))
        return loss.detach()

    def _agree(self) -> None:
        self.before_exchange()

    def _enter(self, phase: Phase) -> AbstractContextManager[None]:
        self.phase = phase
        return self.clock.phase(phase)

    def _update_here(self, loss: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Clip and update; returns the norm and whether a number was none."""
        norm = self._clip()
        not_finite = _find_not_finite(loss, None if self.scaler is not None else norm)  # a scaler tries large ones
        self._update(not_finite)
        return norm, not_finite

    def _update_by_engine(self, loss: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The same by DeepSpeed, which knows the norm when it is done, and leaves out what it is no number of."""
        assert isinstance(self.way, Zero)
        self._is_updating = True
        norm = self.way.update()
        return None if self.clip_norm is None else norm, _find_not_finite(loss, norm)

    def _clip(self) -> torch.Tensor | None:
        """The gradient's norm before clipping, where it is clipped.

        Fused AdamW divides gradients as it reads them; to shrink them here would be one more pass over all of them.
        """
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.clip_norm is None or self._in_backward is not None:
            return None
        learning = [weight for weight in self.model.parameters() if weight.grad is not None]
        norm = self.way.total_norm([weight.grad for weight in learning if weight.grad is not None])
        if self.way.has_shards:
            nn.utils.clip_grads_with_norm_(learning, self.clip_norm, norm)
            return norm.full_tensor() if isinstance(norm, DTensor) else norm
        if self._tells_optimizer and norm.dtype == torch.float32:  # the type that its kernel takes the divisor in
            divisor = ((norm + _CLIP_EPSILON) / self.clip_norm).clamp(min=1.0)
            self.optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        else:
            nn.utils.clip_grads_with_norm_(learning, self.clip_norm, norm)
        return norm

    def _update(self, not_finite: torch.Tensor) -> None:
        self._is_updating = True
        if self._in_backward is not None:
            self._in_backward.finish()
        elif self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif not (self._asks_host and bool(not_finite)):
            if self._tells_optimizer:
                self.optimizer.found_inf = not_finite  # type: ignore[attr-defined]
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _do_nothing() -> None:
    """One process has nobody to agree with."""


def _find_not_finite(loss: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
    """1.0 or 0.0, on the device."""
    finite = loss.isfinite() if norm is None else loss.isfinite() & norm.isfinite()
    return finite.logical_not().to(torch.float32)


def micro_batch_loss_sum(model: nn.Module, batch: MicroBatch) -> torch.Tensor:
    """Sum of the losses of a micro-batch, text-to-text or classifier."""
    loss: torch.Tensor = model(
        batch.source_ids, batch.labels, batch.decoder_ids, batch.source_mask, counted_rows=batch.target_tokens
    )
    return loss
