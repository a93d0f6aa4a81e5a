from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqfit.planning.evaluation_work import ASSUMED_ROWS, count_evaluations, find_evaluation_work
from seqfit.planning.shape import assume_workload
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe


def read(*overrides: str) -> Recipe:
    return load_recipe("demo", overrides)


@pytest.mark.parametrize(
    ("fields", "total_steps", "steps_per_epoch", "times"),
    [
        ({}, 300, 100.0, 3),
        ({}, 250, 100.0, 3),
        ({}, 30, 100.0, 1),
        ({"every_steps": 50}, 250, 100.0, 5),
        ({"every_steps": 50, "at_start": True}, 260, 100.0, 7),
        ({"every_steps": 500}, 250, 100.0, 1),
        ({}, 938, 312.5, 3),  # 10,000 rows in batches of 32, rounded up
    ],
)
def test_an_evaluation_follows_each_epoch_or_so_many_steps_and_the_last_step(
    fields: dict[str, Any], total_steps: int, steps_per_epoch: float, times: int
) -> None:
    settings = {"every_steps": None, "at_start": False, **fields}
    recipe = read()
    recipe = recipe.model_copy(update={"eval": recipe.eval.model_copy(update=settings)})
    assert count_evaluations(recipe, total_steps, steps_per_epoch) == times


def test_without_data_lengths_and_rows_are_assumed() -> None:
    workload = assume_workload(8, 300, 40, total_steps=20)
    unlimited = read("eval.limit=null", "eval.max_new_tokens=null")
    work = find_evaluation_work(unlimited, None, workload, None, 10_000.0)
    fewer = find_evaluation_work(unlimited, None, workload, None, 100.0)
    assert work is not None
    assert fewer is not None
    assert (work.rows, fewer.rows) == (ASSUMED_ROWS, 80)
    assert (set(work.source_lengths), set(work.target_lengths)) == ({300}, {40})
    assert work.max_new_tokens == 51  # a quarter more than any target
    limited = find_evaluation_work(read("eval.limit=200"), None, workload, 45, 10_000.0)
    assert limited is not None
    assert (limited.rows, limited.max_new_tokens) == (200, 44)


def test_a_classifier_generates_nothing() -> None:
    workload = assume_workload(8, 300, 1, is_classifier=True)
    work = find_evaluation_work(read("eval.beams=4"), None, workload, None, 10.0)
    assert work is not None
    assert work.beams == 1
    assert not np.any(work.target_lengths)
