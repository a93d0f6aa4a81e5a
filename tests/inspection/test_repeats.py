from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from seqfit.inspection.statistics import (
    RowHasher,
    RowHashes,
    count_several_targets,
    find_same_pairs,
    find_shared_groups,
    find_shared_sources,
    hash_text,
)

TRAIN = [("a", "1", "x"), ("a", "1", "x"), ("a", "2", ""), ("b", "3", "y")]
VALIDATION = [("b", "9", "z"), ("c", "4", "x"), ("d", "5", "")]


def hash_rows(rows: Iterable[tuple[str, str, str]]) -> RowHashes:
    hasher = RowHasher()
    for row in rows:
        hasher.add(*row)
    return hasher.finish()


def test_the_example_of_the_docstring_holds() -> None:
    train, validation = hash_rows(TRAIN), hash_rows(VALIDATION)
    assert find_same_pairs(train).tolist() == [1]
    assert count_several_targets(train) == 1
    assert find_shared_sources(validation, train).tolist() == [0]


def test_rows_without_a_group_share_none() -> None:
    shared = find_shared_groups(hash_rows(VALIDATION), hash_rows(TRAIN))
    assert shared.tolist() == [1]


def test_parts_are_kept_apart() -> None:
    assert hash_text("ab", "c") != hash_text("a", "bc")


def test_an_exact_repeat_is_not_a_second_target() -> None:
    assert count_several_targets(hash_rows([("a", "1", "")] * 5)) == 0


def test_a_row_takes_24_bytes() -> None:
    hashes = hash_rows(("s" * 1000, "t", "g") for _ in range(10))
    assert sum(part.nbytes for part in (hashes.source, hashes.pair, hashes.group)) == 240
    assert hashes.source.dtype == np.uint64
