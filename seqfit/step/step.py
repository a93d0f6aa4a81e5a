"""One optimizer step over a global batch: micro-batches -> normalised loss -> clip -> update. No I/O, no host sync.

The divisor (target tokens of the whole global batch) is counted on the host before the first forward, so every
micro-batch contributes its exact share and the gradient does not depend on how the batch was cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from seqfit.data.loader import GlobalBatch
from seqfit.data.micro_batch import MicroBatch
from seqfit.model.loss import LossModel
from seqfit.step.clock import StepClock
from seqfit.step.in_backward import InBackward
from seqfit.step.precision import Precision


@dataclass(frozen=True)
class StepOutcome:
    """What a step leaves behind, still on the device: reading it waits for the device."""

    loss: torch.Tensor  # mean over the global batch's target tokens
    gradient_norm: torch.Tensor | None  # before clipping; None where nothing is clipped


class TrainStep:
    """Holds what an update needs; calling it makes one."""

    def __init__(
        self,
        model: LossModel,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        clip_norm: float | None,
        *,
        in_backward: bool = False,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.clip_norm = clip_norm
        self.clock = StepClock(precision.device)
        self._in_backward = InBackward(optimizer) if in_backward else None
        self._scaler = torch.amp.GradScaler(precision.device.type) if precision.needs_scaler else None

    def __call__(self, batch: GlobalBatch) -> StepOutcome:
        """One update with the whole global batch."""
        loss = torch.zeros((), device=self.precision.device)
        for number, micro_batch in enumerate(batch.micro_batches, 1):
            if self._in_backward is not None:
                self._in_backward.arm(last=number == len(batch.micro_batches))
            with self.clock.phase("host_to_device"):
                moved = micro_batch.to(self.precision.device)
            loss += self._accumulate(moved, batch.loss_terms)
        with self.clock.phase("optimizer"):
            norm = self._update()
        return StepOutcome(loss, norm)

    def _accumulate(self, batch: MicroBatch, loss_terms: int) -> torch.Tensor:
        """Add a micro-batch's share of the gradient; returns its share of the loss."""
        with self.model.running(batch.source_lengths, batch.target_lengths):
            with self.clock.phase("forward"), self.precision.autocast():
                loss = micro_batch_loss_sum(self.model, batch) / loss_terms
            with self.clock.phase("backward"):
                (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        return loss.detach()

    def _update(self) -> torch.Tensor | None:
        if self._in_backward is not None:
            self._in_backward.finish()
            return None
        if self._scaler is not None:
            self._scaler.unscale_(self.optimizer)
        norm = None
        if self.clip_norm is not None:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        if self._scaler is None:
            self.optimizer.step()
        else:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm


def micro_batch_loss_sum(model: nn.Module, batch: MicroBatch) -> torch.Tensor:
    """Sum of the losses of a micro-batch, text-to-text or classifier."""
    loss: torch.Tensor = model(
        batch.source_ids, batch.labels, batch.decoder_ids, batch.source_mask, counted_rows=batch.target_tokens
    )
    return loss
