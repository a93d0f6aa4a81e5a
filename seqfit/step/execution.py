"""How a model runs under a strategy: packed or padded, which attention, which loss, with what exchanged.

In: a model on its device and a strategy. Out: the model with its loss, how batches are cut, and what was decided on
the way, for the run's events.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from seqfit.data.batching import Batching
from seqfit.model.lean import make_lean
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.ragged import Ragged, explain_why_not
from seqfit.recipe.schema import TrainRecipe
from seqfit.step.compiling import compile_blocks
from seqfit.step.host_memory import arrange_freed_memory
from seqfit.step.recompute import enable_recompute
from seqfit.strategy.schema import Strategy

SHORT_ON_CPU, SHORT_ON_GPU = 32, 512  # tokens


@dataclass(frozen=True)
class Execution:
    """A model ready to be trained."""

    model: LossModel
    batching: Batching
    events: list[tuple[str, str]]  # kind and message: what was plugged in, what differs from what was asked for
    rule: LossRule
    ragged: Ragged | None


def choose_blockwise_above(attention: str, device: torch.device) -> int:
    """The length up to which torch's own attention is used, on segments padded for it alone.

    Short segments are a matter of calls, of which torch's has fewer. On a CPU blockwise attention is the faster one
    from 64 tokens on (benchmarks/attention); on a GPU calls weigh more, but none has been measured.
    """
    if attention == "auto":
        return SHORT_ON_CPU if device.type == "cpu" else SHORT_ON_GPU
    return 0 if attention == "blockwise" else sys.maxsize


def build_execution(model: PreTrainedModel, strategy: Strategy, train: TrainRecipe, device: torch.device) -> Execution:
    """Plug in what the strategy asks for; what can't be had is told, never left out quietly."""
    events: list[tuple[str, str]] = []
    blocks = enable_recompute(model, strategy.recompute)
    if blocks:
        events.append(("recompute", f"activations of {blocks} blocks are computed again in the backward"))
    batching, ragged = strategy.batching, None
    reason = explain_why_not(model)
    if batching == "ragged" and reason is not None:
        batching = "grouped"
        events.append(("fallback", f"padded batches, grouped by length: {reason}"))
    elif batching == "ragged":
        if not strategy.compile:  # which fuses these parts by itself, and can't look into numpy
            make_lean(model, device)
        ragged = Ragged(model, choose_blockwise_above(strategy.attention, device))
    if ragged is None and strategy.attention == "eager":
        model.set_attn_implementation("eager")
    if device.type == "cpu":
        arranged = arrange_freed_memory(strategy.host_memory)
        if arranged is not None:
            events.append(("memory", arranged))
    if strategy.compile:
        events.append(("compile", f"{compile_blocks(model, device)} blocks, at the first steps"))
    rule = LossRule(train.label_smoothing, train.z_loss, chunked=strategy.loss == "chunked")
    return Execution(LossModel(model, rule, ragged), batching, events, rule, ragged)
