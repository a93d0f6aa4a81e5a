from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from seqfit.comparison.matrix import describe_matrix, list_repeats
from seqfit.comparison.records import dump_matrix, load_matrix
from seqfit.errors import RecipeError
from tests.comparison.comparisons import matrix_of, recipe_of, recipe_values


def test_every_repeat_has_each_candidate_once_and_none_that_is_not_available() -> None:
    matrix = matrix_of(strategies="classic", seeds=[0, 1], repeats=2)
    repeats = list_repeats(matrix)
    assert len(repeats) == 4
    assert {frozenset(trial.candidate for trial in trials) for trials in repeats} == {
        frozenset({"baseline", "accumulation", "recompute", "adafactor"})
    }
    assert [len(trials) for trials in repeats] == [4] * 4
    assert [(trials[0].seed, trials[0].repeat) for trials in repeats] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_every_second_repeat_goes_backwards_and_every_third_begins_with_another() -> None:
    orders = [
        "".join(trial.candidate[0] for trial in trials)
        for trials in list_repeats(matrix_of(strategies=[{"a": []}, {"b": []}, {"c": []}], repeats=4))
    ]
    assert orders == ["abc", "cba", "bca", "acb"]


def test_over_all_repeats_each_candidate_is_as_often_early_as_late() -> None:
    names = ["a", "b", "c"]
    places: dict[str, Counter[int]] = {name: Counter() for name in names}
    for trials in list_repeats(matrix_of(strategies=[{name: []} for name in names], repeats=6)):
        for place, trial in enumerate(trials):
            places[trial.candidate][place] += 1
    assert all(set(counts.values()) == {2} for counts in places.values())


def test_a_trial_has_the_steps_of_all_its_seed_and_one_evaluation_at_the_end() -> None:
    recipe = recipe_of(matrix_of(steps=25), "recompute", seed=7)
    assert (recipe.train.steps, recipe.eval.every_steps, recipe.seed) == (25, 25, 7)


@pytest.mark.parametrize(("own", "asked", "steps"), [(None, None, 15), (12, None, 12), (5000, None, 15), (12, 90, 90)])
def test_steps_are_few_unless_something_is_said(own: int | None, asked: int | None, steps: int) -> None:
    train = {"batch_examples": 8} | ({} if own is None else {"steps": own})
    assert matrix_of(recipe=recipe_values(train=train), steps=asked).steps == steps


def test_a_trial_that_is_all_warm_up_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"a trial has 4 steps, of which 3 are warm-up.*--steps 5 or more"):
        matrix_of(steps=4)


def test_a_matrix_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    matrix = matrix_of(strategies="classic,ddp2", gpus=["rtx3090"], budget="20m", vary={"train.clip_norm": [None]})
    dump_matrix(matrix, tmp_path)
    assert load_matrix(tmp_path) == matrix


def test_what_would_be_run_is_described() -> None:
    said = describe_matrix(
        matrix_of(strategies="baseline,fp16,recompute", gpus=["rtx3090"], seeds=[0, 1], budget="20m")
    )
    lines = said.splitlines()
    assert lines[0] == (
        "comparison: 20 trials (2 candidates x seeds 0, 1 x 5 repeats), 15 steps each, of which 3 are warm-up"
    )
    assert "recompute  lossless      strategy.recompute=blocks" in lines
    assert any(line.startswith("fp16 is only predicted; not available here: fp16 needs a GPU") for line in lines)
    assert any(line.startswith("predictions for: this machine, NVIDIA GeForce RTX 3090") for line in lines)
    assert any(line.startswith("budget: 20 min 00 s") for line in lines)
    assert any(line.startswith("note: candidates that don't set micro-batches") for line in lines)


def test_a_learning_rate_that_never_peaks_is_noted() -> None:
    train = {"batch_examples": 8, "schedule": {"warmup_steps": 100}}
    assert "train.schedule.warmup_steps=100" in matrix_of(recipe=recipe_values(train=train)).notes[-1]
    assert "train.schedule" not in " ".join(matrix_of(recipe=recipe_values(train=train), steps=101).notes)
