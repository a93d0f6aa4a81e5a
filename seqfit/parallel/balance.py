"""Which blocks each stage of a pipeline holds: consecutive ones, so that the largest share is as small as it can be.

In: what every block costs, in bytes or seconds, the encoder's first. Out: a range of blocks for each stage.

    costs 6 2 2 2 2 3 over 3 stages    6 | 2 2 2 | 2 3    the largest share is 6
    the same number of blocks each     6 2 | 2 2 | 2 3    it would be 8

A pipeline is as fast as its slowest stage, and fits if its fullest one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from torch import nn
from transformers import PreTrainedModel

from seqfit.model import family_of, find_blocks

TYPICAL_TOKENS = 4096  # of a micro-batch, where the caller knows no better
_TRAINABLE_BYTES, _FROZEN_BYTES = 16, 4  # fp32: a weight; its gradient and AdamW's two moments
_ACTIVATION_BYTES = 4
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
    costs = [float(_weight_bytes(block) + _activation_bytes(block, tokens)) for block in blocks]
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


def _activation_bytes(block: nn.Module, tokens: int) -> int:
    linears = [part for part in block.modules() if isinstance(part, nn.Linear)]
    return tokens * _ACTIVATION_BYTES * sum(linear.in_features + linear.out_features for linear in linears)
