from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from seqfit.inspection.statistics import (
    bin_lengths,
    label_bins,
    measure_limits,
    measure_padding,
    round_limit,
    summarise_lengths,
    summarise_splits,
)


def test_the_example_of_the_docstring_holds() -> None:
    lengths = np.array([3, 5, 4, 20])
    waste = {entry.method: entry.source for entry in measure_padding(lengths, lengths, 2, (20, 20), seed=0)}
    assert waste["max_length"] == 80 / 32
    assert waste["grouped"] == 48 / 32
    assert waste["packed"] == 1
    assert waste["dynamic"] in (48 / 32, 50 / 32)  # which rows meet depends on the shuffle


def test_padding_counts_a_last_batch_by_its_own_size() -> None:
    lengths = np.array([10, 10, 10])
    waste = measure_padding(lengths, lengths, 2, (10, 10), seed=0)
    assert [entry.both for entry in waste] == [1, 1, 1, 1]


def test_grouping_by_length_wastes_less_than_random_batches() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.integers(5, 300, 2000), rng.integers(2, 30, 2000)
    waste = {entry.method: entry.both for entry in measure_padding(source, target, 16, (300, 30), seed=1)}
    assert waste["max_length"] > waste["dynamic"] > waste["grouped"] > waste["packed"] == 1


def test_without_target_tokens_only_sources_are_padded() -> None:
    source = np.array([2, 4])
    waste = measure_padding(source, np.zeros(2, dtype=int), 2, (8, 0), seed=0)[0]
    assert (waste.source, waste.target, waste.both) == (16 / 6, None, 16 / 6)


def test_every_row_is_in_a_bin_and_the_last_bin_is_open() -> None:
    lengths = np.append(np.arange(1000) % 480, 5000)
    edges, counts = bin_lengths(lengths)
    assert sum(counts) == 1001
    assert edges[-1] == 5001
    assert len(counts) <= 25
    assert label_bins(edges)[-1] == f"{edges[-2]}+"


def test_equal_lengths_make_one_bin() -> None:
    edges, counts = bin_lengths(np.array([2, 2, 2]))
    assert (edges, counts, label_bins(edges)) == ((2, 3), (3,), ("2",))


def test_bins_are_named_by_what_they_hold() -> None:
    assert label_bins((20, 40, 60, 300)) == ("20–39", "40–59", "60+")


def test_a_limit_truncates_what_is_longer_and_not_what_is_equal() -> None:
    summary = summarise_lengths(np.array([3, 5, 4, 20]), 5)
    assert (summary.truncated_rows, summary.truncated_share) == (1, 0.25)
    assert (summary.minimum, summary.mean, summary.median, summary.maximum) == (3, 8.0, 4.5, 20)


def test_rows_truncated_before_for_lack_of_positions_are_counted() -> None:
    summary = summarise_lengths(np.array([100, 512, 512]), None, already_truncated=2)
    assert (summary.limit, summary.truncated_rows) == (512, 2)


@pytest.mark.parametrize("most", [1, 7, 24, 25, 99, 540, 4096, 100_000])
def test_bins_are_never_too_many(most: int) -> None:
    edges, counts = bin_lengths(np.arange(1, most + 1))
    assert 1 <= len(counts) <= 25
    assert sum(counts) == most
    assert edges[0] <= 1


def test_splits_are_summed_up_by_side_without_what_has_no_tokens() -> None:
    def split(source: list[int], target: list[int], truncated: int = 0) -> SimpleNamespace:
        lengths = {"source_lengths": np.array(source, dtype=int), "target_lengths": np.array(target, dtype=int)}
        return SimpleNamespace(**lengths, truncated_sources=truncated, truncated_targets=0)

    classified = split([3, 9, 9], [0, 0, 0], truncated=2)
    found = summarise_splits({"train": classified, "validation": split([], [])})  # type: ignore[dict-item]
    assert list(found["train"]) == ["source"]
    assert found["train"]["source"]["mean"] == 7
    assert (found["train"]["source"]["limit"], found["train"]["source"]["truncated_rows"]) == (9, 2)
    assert found["validation"] == {}


@pytest.mark.parametrize(("tokens", "limit"), [(1, 8), (100, 104), (128, 128), (129, 192), (700, 704)])
def test_limits_are_round(tokens: int, limit: int) -> None:
    assert round_limit(tokens) == limit


def test_a_limit_says_what_it_would_truncate() -> None:
    limits = measure_limits(np.arange(1, 1001))
    assert [(one.limit, one.rows, one.share) for one in limits] == [(960, 40, 0.04), (1000, 0, 0.0)]
    words = measure_limits(np.arange(1, 1001), "words")
    assert [(one.limit, one.rows) for one in words] == [(901, 99), (951, 49), (991, 9), (1000, 0)]


def test_no_limit_is_above_the_longest() -> None:
    assert [(one.limit, one.rows) for one in measure_limits(np.array([5, 5, 6]))] == [(6, 0)]
