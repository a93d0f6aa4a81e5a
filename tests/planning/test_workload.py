from __future__ import annotations

import numpy as np
import pytest

from seqfit.data.batching import MicroBatchRule
from seqfit.errors import PlanError
from seqfit.planning.shape import Workload, assume_workload


def make_workload(sources: list[int], steps: list[list[int]]) -> Workload:
    lengths = np.array(sources, dtype=np.int32)
    rows = tuple(np.array(step) for step in steps)
    return Workload(lengths, np.ones_like(lengths), rows, False, 10)


def test_steps_are_split_by_the_rule() -> None:
    workload = make_workload([7, 3, 4, 4], [[0, 1], [2, 3]])
    split = workload.split(MicroBatchRule("packed", tokens=10), workload.steps)
    assert [[shape.sources for shape in step] for step in split] == [[(7,), (3,)], [(4, 4)]]


def test_padded_shapes_are_as_long_as_the_longest() -> None:
    workload = make_workload([7, 3], [[0, 1]])
    (shape,) = workload.split(MicroBatchRule("padded", tokens=100), workload.steps)[0]
    assert (shape.sources, shape.targets, shape.packed) == ((7, 7), (1, 1), False)


def test_the_largest_steps_have_the_most_tokens_and_the_longest_example() -> None:
    workload = make_workload([9, 1, 6, 6, 2, 2], [[0, 1], [2, 3], [4, 5]])
    assert [rows.tolist() for rows in workload.largest()] == [[2, 3], [0, 1]]


def test_as_if_the_longest_text_were_longer_or_shorter() -> None:
    workload = make_workload([7, 3, 5], [[0, 1, 2]])
    assert workload.with_longest(20, None).source_lengths.tolist() == [20, 3, 5]
    assert workload.with_longest(4, None).source_lengths.tolist() == [4, 3, 4]
    with pytest.raises(PlanError, match="at least one token"):
        workload.with_longest(0, None)


def test_a_batch_without_tokens_is_refused() -> None:
    with pytest.raises(PlanError, match="0 source"):
        assume_workload(4, 0, 5)
