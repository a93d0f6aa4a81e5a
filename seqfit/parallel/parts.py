"""Takes one stage's part out of a model: its blocks, and the embedding, norms and head that lie between or around them.

In: a whole stock model and which blocks to keep. Out: the same model object without the rest, which is freed. Every
weight keeps its name. Its stacks' own forwards run what is left of them.

    T5 of 3 + 3 blocks, 2 stages, 4 blocks for the first one
    stage 0   shared   encoder.block.0 1 2   encoder.final_layer_norm   decoder.block.0
    stage 1   shared (the head's, tied)      decoder.block.1 2          decoder.final_layer_norm   lm_head
              decoder.block.0...relative_attention_bias

The table of position biases of T5's first block is used by all blocks of its stack, so each stage has a copy: the
biases themselves, of all distances or pairs, would be larger on the wire. UMT5 has a table in every block.

What a stack does before its first block and behind its last one is left out where that block is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

SIDES = ("encoder", "decoder")


@dataclass(frozen=True)
class StagePart:
    """The blocks of one stage."""

    encoder: range  # numbers within their stack; empty: the stage has none
    decoder: range
    is_first: bool
    is_last: bool


def assign_parts(cut: Sequence[range], encoder_blocks: int) -> list[StagePart]:
    """From ranges over all blocks, the encoder's first."""
    return [
        StagePart(
            encoder=range(blocks.start, max(blocks.start, min(blocks.stop, encoder_blocks))),
            decoder=range(max(blocks.start - encoder_blocks, 0), max(blocks.stop - encoder_blocks, 0)),
            is_first=stage == 0,
            is_last=stage == len(cut) - 1,
        )
        for stage, blocks in enumerate(cut)
    ]


def blocks_of(stack: Any) -> nn.ModuleList:
    """T5 calls them block, BART's kind layers."""
    blocks: nn.ModuleList = stack.block if hasattr(stack, "block") else stack.layers
    return blocks


def keep_part(model: PreTrainedModel, part: StagePart) -> None:
    """In place. A stage that holds the head of a model with tied weights keeps the embedding's name for it."""
    head_is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if not (part.is_first or (part.is_last and head_is_tied)):
        _drop_embeddings(model)
    if not part.is_last:
        model.lm_head = None
    for side in SIDES:
        blocks: range = getattr(part, side)
        if blocks:
            _keep_blocks(getattr(model.base_model, side), blocks)
        else:
            setattr(model.base_model, side, None)


def _drop_embeddings(model: PreTrainedModel) -> None:
    """Of both sides: the first stage looks all tokens up."""
    model.base_model.shared = None
    for side in SIDES:
        getattr(model.base_model, side).embed_tokens = None


def _keep_blocks(stack: Any, kept: range) -> None:
    blocks = blocks_of(stack)
    begins, ends = kept.start == 0, kept.stop == len(blocks)
    needs_bias = hasattr(stack, "block") and _lacks_bias(blocks[kept.start])
    if needs_bias:
        setattr(blocks, "0", _BiasOnly(blocks[0]))
    for number in range(len(blocks)):
        if number not in kept and not (needs_bias and number == 0):
            delattr(blocks, str(number))  # `del blocks[number]` would renumber, and so rename, the others
    if not (begins and ends):
        _open_edges(stack, begins=begins, ends=ends)


def _lacks_bias(block: Any) -> bool:
    return not hasattr(block.layer[0].SelfAttention, "relative_attention_bias")


def _open_edges(stack: Any, *, begins: bool, ends: bool) -> None:
    """Leave out what belongs before the first block or behind the last one."""
    absent = [] if begins else ["layernorm_embedding"]
    absent += [] if ends else ["final_layer_norm", "layer_norm"]
    for name in absent:
        if hasattr(stack, name):
            setattr(stack, name, nn.Identity())
    if isinstance(stack.dropout, nn.Module):
        stack.dropout = _EdgeDropout(stack.dropout, begins=begins, ends=ends)
        stack.register_forward_pre_hook(stack.dropout.restart)
    elif not begins:  # BART's kind: a rate, used before the first block only
        stack.dropout = 0.0
    if not begins and hasattr(stack, "embed_positions"):
        stack.embed_positions = _NoPositions()
        stack.embed_scale = 1.0  # Marian's decoder multiplies whatever it is given


class _BiasOnly(nn.Module):
    """In the place of a T5 stack's first block: only its table of position biases, for the blocks behind it."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        attention = block.layer[0].SelfAttention
        for name in ("q", "k", "v", "o"):
            delattr(attention, name)
        self.layer = nn.ModuleList([nn.ModuleDict({"SelfAttention": attention})])  # the block's own names

    def forward(self, states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
        """As a block's, which hands on the biases of its own and of its cross-attention."""
        attention: Any = self.layer[0].SelfAttention
        length = states.shape[1]
        return states, attention.compute_bias(length, length, device=states.device), None


class _EdgeDropout(nn.Module):
    """T5's stack calls one dropout twice: before its first block and behind its last norm. Here at most one of both."""

    def __init__(self, dropout: nn.Module, *, begins: bool, ends: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self._is_here = (begins, ends)
        self._calls = 0

    def restart(self, *_: Any) -> None:
        """Before each forward of the stack: the last one may have failed between the two calls."""
        self._calls = 0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Of any shape."""
        is_here = self._is_here[self._calls]
        self._calls += 1
        dropped: torch.Tensor = self.dropout(states) if is_here else states
        return dropped


class _NoPositions(nn.Module):
    """In the place of BART's positions, which are added before the first block."""

    def forward(self, *_: Any, **__: Any) -> torch.Tensor:
        """Nothing to add."""
        return torch.zeros(())
