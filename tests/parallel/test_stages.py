from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

from seqfit.model.load import load_model
from seqfit.parallel.stages import estimate_block_costs, estimate_block_times, split_stages
from seqfit.recipe.schema import ModelRecipe

SHAPE: dict[str, Any] = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}


def largest_of(costs: list[float], split: list[range]) -> float:
    return max(sum(costs[block] for block in blocks) for blocks in split)


def test_the_largest_share_is_the_smallest_of_any_split() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        costs = random.integers(1, 20, random.integers(2, 9)).astype(float).tolist()
        stages = int(random.integers(1, len(costs) + 1))
        every = [
            [range(start, end) for start, end in pairwise([0, *inner, len(costs)])]
            for inner in combinations(range(1, len(costs)), stages - 1)
        ]
        assert largest_of(costs, split_stages(costs, stages)) == min(largest_of(costs, split) for split in every)


@pytest.mark.parametrize(("blocks", "stages"), [(4, 2), (5, 3), (24, 7), (3, 3), (6, 1)])
def test_stages_are_consecutive_and_none_is_empty(blocks: int, stages: int) -> None:
    split = split_stages([1.0] * blocks, stages)
    assert len(split) == stages
    assert [block for part in split for block in part] == list(range(blocks))
    assert min(map(len, split)) >= 1


def test_the_example_of_the_module_is_true() -> None:
    assert split_stages([6, 2, 2, 2, 2, 3], 3) == [range(1), range(1, 4), range(4, 6)]


def test_equal_blocks_are_split_evenly() -> None:
    assert [len(part) for part in split_stages([1.0] * 8, 4)] == [2, 2, 2, 2]
    assert sorted(len(part) for part in split_stages([1.0] * 8, 3)) == [2, 3, 3]


def test_the_embedding_counts_for_the_first_block_and_the_head_for_the_last() -> None:
    model = T5ForConditionalGeneration(T5Config(vocab_size=1000, **SHAPE))
    costs = estimate_block_costs(model, tokens=10)
    table_bytes = 1000 * 16 * 16
    assert len(costs) == 4
    assert costs[0] - costs[1] == table_bytes + 32 * 4 * 16  # and the position biases, which only the first block has
    assert costs[3] - costs[2] == table_bytes - 32 * 4 * 16


def test_a_large_vocabulary_leaves_its_stages_fewer_blocks() -> None:
    shape = {**SHAPE, "num_layers": 4}
    split = split_stages(estimate_block_costs(MT5ForConditionalGeneration(MT5Config(vocab_size=50_000, **shape))), 4)
    assert [len(part) for part in split] == [1, 3, 3, 1]


def test_what_is_frozen_costs_less() -> None:
    model = T5ForConditionalGeneration(T5Config(vocab_size=100, **SHAPE))
    learning = estimate_block_costs(model)
    model.encoder.requires_grad_(False)
    frozen = estimate_block_costs(model)
    assert [after < before for after, before in zip(frozen, learning, strict=True)] == [True, True, False, True]


def test_a_decoder_of_short_targets_takes_little_time(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("mt5")), dropout=0.0))
    *encoder, first, last = estimate_block_times(model, source_tokens=200, target_tokens=10)
    assert encoder == [200 * (4 * 32 * 32 + 3 * 32 * 64)] * 2
    assert first == 200 * 2 * 32 * 32 + 10 * (6 * 32 * 32 + 3 * 32 * 64)
    assert last == first + 10 * 100 * 32
