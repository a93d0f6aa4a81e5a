"""A real step's loss and gradients, and when two of them agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqfit.data.loader import GlobalBatch
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.packing import PackedModel
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep

TOLERANCE = 1e-5
Gradients = dict[str, torch.Tensor]
Update = tuple[float, Gradients]
CPU = Precision("fp32", torch.device("cpu"), "")


def run_step(model: Any, batch: GlobalBatch, rule: LossRule | None = None) -> Update:
    """Loss and gradients of a real step of a plain model, packed or padded as the batch is."""
    packed = batch.micro_batches[0].source_lengths is not None
    return run_wrapped(LossModel(model, rule or LossRule(), PackedModel(model) if packed else None), batch)


def run_wrapped(wrapped: LossModel, batch: GlobalBatch) -> Update:
    """Loss and gradients of a real step, read where the optimizer would use them."""
    seen: Gradients = {}

    class Reader(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            named = wrapped.model.named_parameters()
            seen.update({name: tensor.grad.clone() for name, tensor in named if tensor.grad is not None})

    step = TrainStep(wrapped, Reader(wrapped.model.parameters(), lr=1.0), CPU, None)
    return float(step.run(batch).loss), seen


def assert_agree(ours: Update, reference: Update, tolerance: float = TOLERANCE) -> None:
    """Loss within a share of itself, every gradient within a share of the model's largest one."""
    assert ours[0] == pytest.approx(reference[0], rel=tolerance)
    assert ours[1].keys() == reference[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in reference[1].values())
    assert largest > 1e-3
    for name, gradient in reference[1].items():
        assert float((ours[1][name] - gradient).abs().max()) <= tolerance * largest, name
