from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch, Loader, MicroBatch, Padding, Share

PADDING = Padding(0, 0)
RULES = [
    MicroBatchRule("grouped", tokens=40),
    MicroBatchRule("padded", tokens=40),
    MicroBatchRule("max_length", tokens=100, pad_source_tokens=12, pad_target_tokens=6),
    MicroBatchRule("padded", tokens=10**6),
]


@pytest.fixture(scope="module")
def split(make_split: Any) -> Any:
    random = np.random.default_rng(0)
    sources = [random.integers(1, 50, random.integers(1, 12)).tolist() for _ in range(23)]
    targets = [random.integers(1, 50, random.integers(1, 6)).tolist() for _ in range(23)]
    return make_split(sources, targets)


def loader(split: Any, rule: MicroBatchRule = RULES[0], seed: int = 3, **size: int) -> Loader:
    size = size or {"batch_examples": 5}
    return Loader(
        split,
        PADDING,
        rule,
        batch_examples=size.get("batch_examples"),
        batch_tokens=size.get("batch_tokens"),
        seed=seed,
    )


def take(loader: Loader, steps: int, first_step: int = 0) -> list[GlobalBatch]:
    return list(islice(loader.iterate(first_step), steps))


def test_an_epoch_has_every_row_once_and_ends_on_a_whole_number(split: Any) -> None:
    batches = take(loader(split), 10)
    assert sorted(np.concatenate([batch.rows for batch in batches[:5]])) == list(range(23))
    assert sorted(np.concatenate([batch.rows for batch in batches[5:]])) == list(range(23))
    assert [batch.epoch for batch in batches[:5]] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert [batch.epoch.is_integer() for batch in batches] == ([False] * 4 + [True]) * 2


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [{"batch_examples": 5}, {"batch_tokens": 50}])
def test_no_rule_changes_what_is_in_a_step(split: Any, rule: MicroBatchRule, size: dict[str, int]) -> None:
    for reference, batch in zip(take(loader(split, **size), 8), take(loader(split, rule, **size), 8), strict=True):
        assert batch.rows.tolist() == reference.rows.tolist()
        assert (batch.examples, batch.loss_terms) == (reference.examples, reference.loss_terms)
        assert (batch.source_tokens, batch.target_tokens) == (reference.source_tokens, reference.target_tokens)


@pytest.mark.parametrize("rule", RULES)
def test_the_counts_are_those_of_the_tensors(split: Any, rule: MicroBatchRule) -> None:
    (batch,) = take(loader(split, rule), 1)
    tensors = [(micro.source_mask, micro.labels != -100) for micro in batch.micro_batches]
    assert batch.source_tokens == sum(int(source.sum()) for source, _ in tensors)
    assert batch.target_tokens == batch.loss_terms == sum(int(target.sum()) for _, target in tensors)
    slots = sum(source.numel() + target.numel() for source, target in tensors)
    assert batch.padded_tokens == slots - batch.source_tokens - batch.target_tokens
    assert batch.examples == sum(micro.examples for micro in batch.micro_batches) == len(batch.rows)


@pytest.mark.parametrize("first_step", [1, 4, 5, 6, 13])
def test_a_resumed_iteration_equals_the_tail_of_the_whole_one(split: Any, first_step: int) -> None:
    whole = take(loader(split), 18)[first_step:]
    resumed = take(loader(split), 18 - first_step, first_step)
    for expected, batch in zip(whole, resumed, strict=True):
        assert (batch.rows.tolist(), batch.epoch) == (expected.rows.tolist(), expected.epoch)
        for micro, other in zip(batch.micro_batches, expected.micro_batches, strict=True):
            assert torch.equal(micro.source_ids, other.source_ids)
            assert torch.equal(micro.labels, other.labels)


def test_another_seed_gives_another_order(split: Any) -> None:
    assert take(loader(split), 1)[0].rows.tolist() != take(loader(split, seed=4), 1)[0].rows.tolist()


@pytest.mark.parametrize(("epochs", "steps"), [(1, 5), (3, 15), (0.5, 3), (2.2, 11), (1.4, 7), (0.01, 1)])
def test_steps_are_counted_as_they_will_come(split: Any, epochs: float, steps: int) -> None:
    assert loader(split).count_steps(epochs) == steps
    assert take(loader(split), steps)[-1].epoch >= epochs


def test_token_budgeted_steps_are_counted_epoch_by_epoch(split: Any) -> None:
    batches = loader(split, batch_tokens=50)
    epochs = [batch.epoch for batch in take(batches, batches.count_steps(3))]
    assert epochs[-1] == 3
    assert sum(epoch.is_integer() for epoch in epochs) == 3


def test_weights_of_sources_reach_the_batches(make_split: Any) -> None:
    split = make_split([[1]] * 8, [[1]] * 8, source_index=[0] * 4 + [1] * 4, weights=[2.0, 0.5])
    taken = np.concatenate([batch.rows for batch in take(loader(split), 4)])  # two epochs of 8 + 2 rows
    assert np.bincount(taken).tolist() == [4] * 4 + [1] * 4


def test_an_epoch_too_small_to_take_a_row_is_passed_over(make_split: Any) -> None:
    split = make_split([[1]] * 2, [[1]] * 2, weights=[0.1])
    assert take(loader(split), 1)[0].epoch == 3.0  # 0.2 rows an epoch: 0.6 are rounded to the first one


def test_a_classifiers_step_is_divided_by_its_examples(make_split: Any) -> None:
    split = make_split([[5, 1], [6, 7, 1], [8, 1]], labels=[2, 0, 1])
    batches = Loader(split, Padding(0), RULES[0], batch_examples=3, batch_tokens=None, seed=0)
    (batch,) = take(batches, 1)
    assert (batch.loss_terms, batch.target_tokens) == (3, 0)
    labels = torch.cat([micro.labels for micro in batch.micro_batches])
    assert sorted(labels.tolist()) == [0, 1, 2]


def test_rows_keep_their_order_and_their_labels_when_collated(make_split: Any) -> None:
    split = make_split([[5, 1], [6, 7, 1], [8, 1]], labels=[2, 0, 1])
    batch = MicroBatch.load(split, np.array([2, 0]), RULES[0], Padding(0))
    assert batch.source_ids.tolist() == [[8, 1], [5, 1]]
    assert batch.labels.tolist() == [1, 2]


def test_max_length_pads_every_micro_batch_to_the_limits(split: Any) -> None:
    (batch,) = take(loader(split, RULES[2]), 1)
    shapes = {(micro.source_ids.shape[1], micro.labels.shape[1]) for micro in batch.micro_batches}
    assert shapes == {(12, 6)}
    assert len(batch.micro_batches) == 1


def test_an_empty_split_is_refused_rather_than_searched_for_ever(make_split: Any) -> None:
    with pytest.raises(AssertionError):
        loader(make_split([], []))


@pytest.mark.parametrize("rule", [MicroBatchRule("packed", tokens=20), *RULES])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_share_every_batch_and_agree_on_what_is_of_the_whole(
    split: Any, rule: MicroBatchRule, ranks: int
) -> None:
    settings: dict[str, Any] = {"batch_examples": 5, "batch_tokens": None, "seed": 3}
    alone = take(Loader(split, PADDING, rule, **settings), 6)
    shares = [Share(rank, ranks, lockstep=True) for rank in range(ranks)]
    parts = [take(Loader(split, PADDING, rule, **settings, share=share), 6) for share in shares]
    for whole, batches in zip(alone, zip(*parts, strict=True), strict=True):
        counted = [[micro for micro in batch.micro_batches if not micro.is_dummy] for batch in batches]
        assert sum(micro.examples for part in counted for micro in part) == whole.examples
        assert sum(micro.target_tokens for part in counted for micro in part) == whole.target_tokens
        assert sum(micro.padded_tokens for part in counted for micro in part) == batches[0].padded_tokens
        for batch in batches:
            assert batch.rows.tolist() == whole.rows.tolist()
            assert (batch.loss_terms, batch.source_tokens) == (whole.loss_terms, whole.source_tokens)
            assert len(batch.micro_batches) == len(batches[0].micro_batches) > 0


def test_a_rank_without_rows_has_one_dummy_micro_batch(split: Any) -> None:
    share = Share(3, 4)
    part = Loader(split, PADDING, RULES[0], batch_examples=2, batch_tokens=None, seed=0, share=share)
    (micro_batch,) = take(part, 1)[0].micro_batches
    assert micro_batch.is_dummy
