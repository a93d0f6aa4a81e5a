from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.comparison.collect import TrialRun, find_gaps, has_no_dropout, read_trial
from seqfit.comparison.records import read_outcomes
from tests.comparison.made_runs import BASELINE, FP16, RECOMPUTE, add_trial, make_folder


def read_all(folder: Path) -> list[TrialRun]:
    return [read_trial(folder, outcome) for outcome in read_outcomes(folder)]


def test_the_largest_gap_over_seeds_and_steps_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path)
    for seed in (0, 1):
        add_trial(tmp_path, BASELINE, seed)
        add_trial(tmp_path, RECOMPUTE, seed, loss=3e-5 * seed)
        add_trial(tmp_path, FP16, seed, loss=0.01 - 0.004 * seed)
    gaps = find_gaps(read_all(tmp_path), "baseline")
    assert set(gaps) == {"recompute", "fp16"}
    assert (gaps["recompute"].difference, gaps["recompute"].seed) == (pytest.approx(3e-5), 1)
    assert (gaps["fp16"].difference, gaps["fp16"].seed) == (pytest.approx(0.01), 0)
    assert (gaps["recompute"].is_rounding, gaps["fp16"].is_rounding) == (True, False)
    assert gaps["fp16"].steps == 12


def test_a_seed_that_the_reference_has_not_run_is_no_gap(tmp_path: Path) -> None:
    make_folder(tmp_path)
    add_trial(tmp_path, BASELINE, seed=0)
    add_trial(tmp_path, FP16, seed=1, loss=0.5)
    assert find_gaps(read_all(tmp_path), "baseline") == {}


@pytest.mark.parametrize(
    ("model", "is_off"),
    [
        ({"dropout": 0.0}, True),
        ({"dropout": 0.1}, False),
        ({"name": "a/model"}, False),
        ({"dropout": 0.0, "lora": {"dropout": 0.1}}, False),
        ({"dropout": 0.0, "lora": {"rank": 4}}, True),
    ],
)
def test_dropout_is_off_only_where_the_recipe_says_so(tmp_path: Path, model: dict[str, object], is_off: bool) -> None:
    make_folder(tmp_path)
    add_trial(tmp_path, BASELINE, recipe={"model": model})
    assert has_no_dropout(read_all(tmp_path)[0]) is is_off
