"""Whatever the lengths and the budget: a split loses no row, invents none, and keeps within its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqfit.data.batching import MicroBatchRule, order_epoch, split_global_batches

lengths = st.lists(st.tuples(st.integers(1, 600), st.integers(0, 200)), min_size=1, max_size=60)
rules = st.builds(
    MicroBatchRule,
    batching=st.sampled_from(["packed", "grouped", "padded", "max_length"]),
    tokens=st.integers(1, 5000),
    examples=st.none() | st.integers(1, 9),
    pad_multiple=st.sampled_from([1, 8]),
    pad_source_tokens=st.none() | st.integers(1, 600),
    pad_target_tokens=st.none() | st.integers(1, 200),
)


def _arrays(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    return tuple(np.array(column, dtype=np.int32) for column in zip(*pairs, strict=True))  # type: ignore[return-value]


@given(lengths, rules)
@settings(deadline=None, max_examples=200)
def test_micro_batches_split_the_global_batch_within_the_budget(
    pairs: list[tuple[int, int]], rule: MicroBatchRule
) -> None:
    sources, targets = _arrays(pairs)
    rows = np.random.default_rng(0).permutation(len(pairs)).astype(np.int64)
    pieces = list(rule.split(rows, sources, targets))
    assert sorted(np.concatenate(pieces).tolist()) == sorted(rows.tolist())
    if rule.batching in ("packed", "padded", "max_length"):
        assert np.concatenate(pieces).tolist() == rows.tolist()
    for piece in pieces:
        assert rule.examples is None or len(piece) <= rule.examples
        if rule.batching == "packed":
            cost = int((sources[piece] + targets[piece]).sum())
        else:
            cost = len(piece) * sum(rule.padded_shape(int(sources[piece].max()), int(targets[piece].max())))
        assert len(piece) == 1 or cost <= rule.tokens


@given(lengths, st.integers(1, 3000), st.integers(0, 2**31), st.integers(0, 5))
@settings(deadline=None, max_examples=100)
def test_global_batches_are_the_epoch_in_its_order(
    pairs: list[tuple[int, int]], tokens: int, seed: int, epoch: int
) -> None:
    sources, targets = _arrays(pairs)
    order = order_epoch(np.zeros(len(pairs), dtype=np.int32), [1.0], seed, epoch)
    assert sorted(order.tolist()) == list(range(len(pairs)))
    batches = list(split_global_batches(order, sources + targets, tokens=tokens))
    assert np.concatenate(batches).tolist() == order.tolist()
    assert all(len(batch) == 1 or int((sources + targets)[batch].sum()) <= tokens for batch in batches)
