"""Which blocks each stage of a pipeline holds, and taking one stage's part out of a model.

In: what every block costs, in bytes or seconds, the encoder's first. Out: a range of consecutive blocks for each stage,
so that the largest share is as small as it can be.

    costs 6 2 2 2 2 3 over 3 stages    6 | 2 2 2 | 2 3    the largest share is 6
    the same number of blocks each     6 2 | 2 2 | 2 3    it would be 8

A pipeline is as fast as its slowest stage, and fits if its fullest one does.

`keep_part` leaves of a whole model what one stage has: its blocks, and the embedding, norms and head between or around
them. The rest is freed. Every weight keeps its name, and the stacks' own forwards run what is left of them. What a
stack does before its first block and behind its last one is left out where that block is elsewhere
(`Family.keep_blocks`).

    T5 of 3 + 3 blocks, 2 stages, 4 blocks for the first one
    stage 0   shared   encoder.block.0 1 2   encoder.final_layer_norm   decoder.block.0
    stage 1   shared (the head's, tied)      decoder.block.1 2          decoder.final_layer_norm   lm_head
              decoder.block.0...relative_attention_bias
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from torch import nn
from transformers import PreTrainedModel

from seqfit.model import family_of, find_blocks

TYPICAL_TOKENS = 4096  # of a micro-batch, where the caller knows no better
_TRAINABLE_BYTES, _FROZEN_BYTES = 16, 4  # fp32: a weight; its gradient and AdamW's two moments
_ACTIVATION_BYTES = 4
SIDES = ("encoder", "decoder")
_Split = tuple[tuple[float, float], list[int]]  # (largest sum, sum of squares of the sums), where the stages begin


def split_stages(costs: Sequence[float], stages: int) -> list[range]:
    """Consecutive blocks for each stage, at least one; exact for the largest sum, then the more even split it meets."""
    assert 1 <= stages <= len(costs)
    before = list(accumulate(costs, initial=0.0))
    # best[n]: the first n blocks, split into as many stages as the loop has come to
    best: list[_Split] = [((total, total**2), [0]) for total in before]
    for stage in range(1, stages):
        for end in range(len(costs), stage, -1):
            best[end] = min(_add_stage(best[start], before[end] - before[start], start) for start in range(stage, end))
    return [range(start, end) for start, end in pairwise([*best[-1][1], len(costs)])]


def _add_stage(split: _Split, cost: float, start: int) -> _Split:
    (largest, squares), starts = split
    return (max(largest, cost), squares + cost**2), [*starts, start]


def estimate_block_costs(model: PreTrainedModel, tokens: int = TYPICAL_TOKENS) -> list[float]:
    """Bytes of each block in training: weights, gradients and moments, and what its linear layers take and give.

    The embedding counts for the first block, the head for the last one: that is where they are.
    """
    blocks = list(find_blocks(model, "strategy.parallel=pipeline").values())
    costs = []
    for block in blocks:
        linears = [part for part in block.modules() if isinstance(part, nn.Linear)]
        activations = sum(linear.in_features + linear.out_features for linear in linears)
        costs.append(float(_weight_bytes(block) + tokens * _ACTIVATION_BYTES * activations))
    costs[0] += _weight_bytes(model.get_input_embeddings())
    costs[-1] += _weight_bytes(model.get_output_embeddings())
    return costs


def estimate_block_times(model: PreTrainedModel, source_tokens: float, target_tokens: float) -> list[float]:
    """Multiplications of each block for examples of these lengths; an embedding has none, the head counts for the last.

    Keys and values of the cross-attention are computed from source tokens, all else in a decoder from target tokens.
    """
    blocks = find_blocks(model, "strategy.parallel=pipeline")
    family = family_of(model)
    encoder = {id(part) for part in model.get_encoder().modules()}
    times = [0.0] * len(blocks)
    for number, block in enumerate(blocks.values()):
        for name, part in block.named_modules():
            if isinstance(part, nn.Linear):
                of_source = id(block) in encoder or family.is_cross_key_value(name)
                times[number] += part.weight.numel() * (source_tokens if of_source else target_tokens)
    head = model.get_output_embeddings()
    assert head is not None
    times[-1] += head.weight.numel() * target_tokens
    return times


def _weight_bytes(module: nn.Module) -> int:
    return sum(p.numel() * (_TRAINABLE_BYTES if p.requires_grad else _FROZEN_BYTES) for p in module.parameters())


@dataclass(frozen=True)
class StagePart:
    encoder: range  # numbers within their stack; empty: the stage has none
    decoder: range
    is_first: bool
    is_last: bool


def assign_parts(split: Sequence[range], encoder_blocks: int) -> list[StagePart]:
    """From ranges over all blocks, the encoder's first."""
    return [
        StagePart(
            encoder=range(blocks.start, max(blocks.start, min(blocks.stop, encoder_blocks))),
            decoder=range(max(blocks.start - encoder_blocks, 0), max(blocks.stop - encoder_blocks, 0)),
            is_first=stage == 0,
            is_last=stage == len(split) - 1,
        )
        for stage, blocks in enumerate(split)
    ]


def keep_part(model: PreTrainedModel, part: StagePart) -> None:
    """In place. A stage that holds the head of a model with tied weights keeps the embedding's name for it."""
    family = family_of(model)
    head_is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if not (part.is_first or (part.is_last and head_is_tied)):
        model.base_model.shared = None  # and of both sides: the first stage looks all tokens up
        for side in SIDES:
            getattr(model.base_model, side).embed_tokens = None
    if not part.is_last:
        model.lm_head = None
    for side in SIDES:
        blocks: range = getattr(part, side)
        if blocks:
            family.keep_blocks(getattr(model.base_model, side), blocks)
        else:
            setattr(model.base_model, side, None)
