from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from seqfit.data.batching import (
    CostModel,
    MicroBatchRule,
    RowLengths,
    RowNumbers,
    order_epoch,
    split_global_batches,
)

RULES = [
    MicroBatchRule("grouped", tokens=60),
    MicroBatchRule("padded", tokens=60),
    MicroBatchRule("max_length", tokens=200, pad_source_tokens=45, pad_target_tokens=20),
    MicroBatchRule("grouped", tokens=10**6, examples=3),
    MicroBatchRule("padded", tokens=60, pad_multiple=8),
]


@pytest.fixture(scope="module")
def lengths() -> tuple[RowLengths, RowLengths]:
    random = np.random.default_rng(3)
    return random.integers(1, 40, 100, dtype=np.int32), random.integers(1, 20, 100, dtype=np.int32)


def one_source(rows: int) -> RowNumbers:
    return np.zeros(rows, dtype=np.int64)


def ints(*numbers: int) -> RowLengths:
    return np.array(numbers, dtype=np.int32)


@pytest.mark.parametrize(
    ("batching", "pieces"), [("grouped", [[1, 3], [2, 0]]), ("padded", [[0, 1], [2, 3]]), ("packed", [[0, 1], [2, 3]])]
)
def test_the_docstring_example_holds(batching: Any, pieces: list[list[int]]) -> None:
    split = MicroBatchRule(batching, tokens=20).split(np.arange(4), ints(9, 2, 8, 3), ints(1, 1, 1, 1))
    assert [piece.tolist() for piece in split] == pieces


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_an_epoch_takes_every_row_once(epoch: int) -> None:
    assert sorted(order_epoch(one_source(1000), [1.0], seed=5, epoch=epoch)) == list(range(1000))


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    first = order_epoch(one_source(200), [1.0], seed=5, epoch=2)
    np.random.seed(99)  # the global generator must not matter
    assert first.tolist() == order_epoch(one_source(200), [1.0], seed=5, epoch=2).tolist()
    assert first.tolist() != order_epoch(one_source(200), [1.0], seed=5, epoch=3).tolist()
    assert first.tolist() != order_epoch(one_source(200), [1.0], seed=6, epoch=2).tolist()


def test_weight_2_takes_each_row_twice_and_weight_a_half_every_row_once_in_two_epochs() -> None:
    source_index = np.array([0, 1] * 50 + [1])  # 50 rows and 51
    epochs = [order_epoch(source_index, [2.0, 0.5], seed=1, epoch=epoch) for epoch in range(4)]
    for order in epochs:
        assert {Counter(order.tolist())[row] for row in np.flatnonzero(source_index == 0)} == {2}
    for pair in (epochs[:2], epochs[2:]):
        halves = np.concatenate(pair)
        assert sorted(halves[source_index[halves] == 1]) == np.flatnonzero(source_index == 1).tolist()


@pytest.mark.parametrize("weight", [0.1, 0.3, 1.5, 2.7])
def test_over_many_epochs_every_row_is_taken_as_often_as_its_weight_says(weight: float) -> None:
    taken = Counter(np.concatenate([order_epoch(one_source(7), [weight], 0, epoch) for epoch in range(20)]).tolist())
    assert set(taken) == set(range(7))
    assert max(taken.values()) - min(taken.values()) <= 1
    assert sum(taken.values()) == round(20 * weight * 7)


def test_sources_are_mixed_not_strung_together() -> None:
    order = order_epoch(np.array([0] * 500 + [1] * 500), [1.0, 1.0], seed=0, epoch=0)
    assert 150 < np.count_nonzero(order[:500] < 500) < 350


def test_a_source_without_rows_adds_none() -> None:
    assert sorted(order_epoch(one_source(3), [1.0, 1.0], seed=0, epoch=0)) == [0, 1, 2]


@pytest.mark.parametrize(("examples", "sizes"), [(4, [4, 4, 2]), (5, [5, 5]), (100, [10])])
def test_global_batches_of_so_many_examples_leave_no_row_out(examples: int, sizes: list[int]) -> None:
    batches = list(split_global_batches(np.arange(10)[::-1], ints(*range(10)), examples=examples))
    assert [len(batch) for batch in batches] == sizes
    assert np.concatenate(batches).tolist() == list(range(10))[::-1]


def test_a_token_budget_is_never_exceeded_but_by_a_single_row(lengths: tuple[RowLengths, RowLengths]) -> None:
    real = lengths[0] + lengths[1]
    order = order_epoch(one_source(100), [1.0], seed=0, epoch=0)
    batches = list(split_global_batches(order, real, tokens=50))
    assert np.concatenate(batches).tolist() == order.tolist()
    assert all(real[batch].sum() <= 50 or len(batch) == 1 for batch in batches)
    assert any(real[batch].sum() > 50 for batch in batches)  # the exception occurs here
    for batch, following in pairwise(batches):
        assert real[batch].sum() + real[following[0]] > 50  # full: the next row would not have fitted


def test_no_rows_make_no_batches() -> None:
    nothing = np.array([], dtype=np.int64)
    assert list(split_global_batches(nothing, ints(1), tokens=5)) == []
    assert list(split_global_batches(nothing, ints(1), examples=5)) == []
    assert list(MicroBatchRule().split(nothing, ints(1), ints(1))) == []


@pytest.mark.parametrize("rule", RULES)
def test_splitting_never_changes_the_global_batch(rule: MicroBatchRule, lengths: tuple[RowLengths, RowLengths]) -> None:
    rows = order_epoch(one_source(100), [1.0], seed=0, epoch=0)[:64]
    pieces = list(rule.split(rows, *lengths))
    assert sorted(np.concatenate(pieces)) == sorted(rows)


@pytest.mark.parametrize("rule", RULES)
def test_a_micro_batch_keeps_to_its_rule_unless_it_is_a_single_row(
    rule: MicroBatchRule, lengths: tuple[RowLengths, RowLengths]
) -> None:
    source, target = lengths
    for piece in rule.split(np.arange(100), source, target):
        shape = rule.padded_shape(int(source[piece].max()), int(target[piece].max()))
        assert len(piece) == 1 or len(piece) * sum(shape) <= rule.tokens
        assert rule.examples is None or len(piece) <= rule.examples


@pytest.mark.parametrize("tokens", [30, 60, 100, 1000, 10**6])
def test_packed_pieces_keep_the_order_and_the_budget_and_are_about_equally_large(
    tokens: int, lengths: tuple[RowLengths, RowLengths]
) -> None:
    source, target = lengths
    real = source + target
    pieces = list(MicroBatchRule("packed", tokens).split(np.arange(100), source, target))
    sizes = [int(real[piece].sum()) for piece in pieces]
    assert np.concatenate(pieces).tolist() == list(range(100))
    assert all(size <= tokens or len(piece) == 1 for size, piece in zip(sizes, pieces, strict=True))
    assert len(pieces) <= 1.5 * np.ceil(sum(sizes) / tokens)
    if tokens >= 1000:
        assert max(sizes) - min(sizes) <= 2 * int(real.max())


def test_packed_pieces_keep_to_the_examples_too(lengths: tuple[RowLengths, RowLengths]) -> None:
    pieces = list(MicroBatchRule("packed", 10**6, examples=7).split(np.arange(100), *lengths))
    assert [len(piece) for piece in pieces] == [7] * 14 + [2]


def test_no_rows_make_no_packed_pieces() -> None:
    nothing = np.array([], dtype=np.int64)
    assert list(MicroBatchRule("packed").split(nothing, ints(1), ints(1))) == []


def test_a_row_that_occurs_twice_in_a_batch_stays_twice() -> None:
    (piece,) = MicroBatchRule().split(np.array([1, 0, 1]), ints(2, 3), ints(1, 1))
    assert piece.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        (MicroBatchRule("grouped"), (9, 3)),
        (MicroBatchRule("grouped", pad_source_tokens=20), (9, 3)),
        (MicroBatchRule("padded", pad_multiple=8), (16, 8)),
        (MicroBatchRule("max_length", pad_source_tokens=20, pad_target_tokens=5), (20, 5)),
        (MicroBatchRule("max_length", pad_source_tokens=20, pad_target_tokens=5, pad_multiple=8), (24, 8)),
        (MicroBatchRule("max_length", pad_source_tokens=4), (9, 3)),
    ],
)
def test_padding_is_up_to_the_longest_or_the_limit_and_a_multiple(rule: MicroBatchRule, shape: tuple[int, int]) -> None:
    assert rule.padded_shape(9, 3) == shape


def test_a_million_rows_are_ordered_and_split_within_seconds() -> None:
    rows = 1_000_000
    lengths = np.random.default_rng(0).integers(5, 100, rows, dtype=np.int32)
    started = time.process_time()
    order = order_epoch(one_source(rows), [1.0], seed=0, epoch=0)
    taken = sum(
        len(piece)
        for batch in split_global_batches(order, lengths, tokens=65536)
        for piece in MicroBatchRule(tokens=16384).split(batch, lengths, lengths)
    )
    assert taken == rows
    assert time.process_time() - started < 10  # 2 to 3 s of one core when written


def test_rows_are_assigned_so_that_no_rank_waits() -> None:
    rows, lengths = np.array([1, 2, 3, 4]), (ints(0, 8, 1, 7, 2), ints(0, 1, 1, 1, 1))
    assert [part.tolist() for part in CostModel().assign(rows, *lengths, 2)] == [[1, 2], [3, 4]]
    assert [part.tolist() for part in CostModel().assign(rows[:1], *lengths, 3)] == [[1], [], []]


def test_assigned_rows_are_all_rows_and_nearly_balanced() -> None:
    draw = np.random.default_rng(0)
    for ranks in (2, 3, 4):
        costs = draw.lognormal(5, 0.6, 32).astype(np.int32)
        parts = CostModel().assign(np.arange(32), costs, np.zeros_like(costs), ranks)
        assert sorted(row for part in parts for row in part.tolist()) == list(range(32))
        loads = [costs[part].sum() for part in parts]
        assert max(loads) < 1.05 * np.mean(loads)
