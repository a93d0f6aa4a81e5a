"""How a model runs under a strategy: packed or padded, which attention, which loss, with what exchanged.

In: a model on its device and a strategy. Out: the model with its loss, how batches are cut, and what was decided on
the way, for the run's events.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from seqfit.data.batching import Batching
from seqfit.model.lean import make_lean
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.ragged import Ragged, explain_why_not
from seqfit.recipe.schema import TrainRecipe
from seqfit.step.host_memory import keep_freed_memory
from seqfit.strategy.schema import Strategy


@dataclass(frozen=True)
class Execution:
    """A model ready to be trained."""

    model: LossModel
    batching: Batching
    events: list[str]  # what differs from what the strategy asked for


def build_execution(model: PreTrainedModel, strategy: Strategy, train: TrainRecipe, device: torch.device) -> Execution:
    """Plug in what the strategy asks for; what can't be had is told, never left out quietly."""
    rule = LossRule(train.label_smoothing, train.z_loss, chunked=strategy.loss == "chunked")
    if strategy.batching != "ragged":
        return Execution(LossModel(model, rule), strategy.batching, [])
    reason = explain_why_not(model)
    if reason is not None:
        return Execution(LossModel(model, rule), "grouped", [f"padded batches grouped by length: {reason}"])
    make_lean(model, device)
    if device.type == "cpu":
        keep_freed_memory()
    return Execution(LossModel(model, rule, Ragged(model)), "ragged", [])
