from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.compare import budget
from seqfit.compare.budget import Pace, cut_steps, drop_rounds, is_decided, rehearse
from seqfit.compare.matrix import list_rounds
from seqfit.compare.records import Matrix, Outcome, Trial
from seqfit.compare.trial import Tick
from seqfit.errors import RecipeError
from seqfit.recipe.resolve import RUN_RECIPE
from tests.compare.tournaments import matrix_of, pretend

PACES = [Pace(10, 1), Pace(10, 2)]


def after(matrix: Matrix, rounds: int, seconds: float = 15.0) -> list[Outcome]:
    """So many rounds have ended, all trials alike."""
    ended = [trial for trials in list_rounds(matrix)[:rounds] for trial in trials]
    return [Outcome(trial.entrant, trial.seed, trial.repeat, "finished", "", seconds, 0.0) for trial in ended]


def test_all_trials_get_as_many_steps_as_fit() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", repeats=3, steps=100, budget="300s")
    cut = cut_steps(matrix, PACES, 240 / 0.95)  # three rounds of 20 s and 3 s a step
    assert cut.steps == 20
    assert cut.notes[-1] == (
        "--budget 5 min 00 s: a rehearsal took 20.0 s to start all entrants once, 3.0 s a step; trials have 20 steps, "
        "not 100"
    )
    assert replace(cut, steps=100, notes=matrix.notes) == matrix


def test_steps_that_fit_stay_and_are_noted() -> None:
    cut = cut_steps(matrix_of(strategies="vanilla,recompute", steps=12, budget="1h"), PACES, 3600)
    assert cut.steps == 12
    assert cut.notes[-1].endswith("all 12 steps fit")


def test_a_budget_that_leaves_nothing_to_measure_is_refused_with_what_it_takes() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", repeats=3, budget="60s")
    with pytest.raises(RecipeError, match=r"With 5 steps, the least, all trials take 1 min 51 s\. Give more"):
        cut_steps(matrix, PACES, 55)


def test_a_budget_is_decided_once() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", budget="1h")
    assert is_decided(replace(matrix, budget_seconds=None))
    assert not is_decided(matrix)
    assert is_decided(cut_steps(matrix, PACES, 3600))


def test_a_rehearsal_takes_a_few_steps_of_each_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def run(matrix: Matrix, trial: Trial, folder: Path, tick: Tick = lambda _: None) -> Outcome:
        assert (folder / RUN_RECIPE).is_file()
        made.append(matrix.steps)
        outcome = pretend(matrix, trial, folder)
        return replace(outcome, state="failed") if trial.entrant == "recompute" else outcome

    monkeypatch.setattr(budget, "run_trial", run)
    (tmp_path / RUN_RECIPE).write_text("")
    matrix = matrix_of(strategies="vanilla,recompute", warm_up=2, steps=50)
    assert rehearse(matrix, tmp_path, ["vanilla", "recompute"]) == [Pace(10.0, 1.0), Pace(15.0, 0.0)]
    assert made == [5, 5]
    assert [path.name for path in tmp_path.iterdir()] == [RUN_RECIPE]


def test_rounds_that_no_longer_fit_are_dropped_with_a_note() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", repeats=5, budget="4m")
    kept = drop_rounds(matrix, after(matrix, 3), 29.0)  # a round of two trials takes 30 s
    assert kept.repeats == 3
    assert kept.notes[-1] == (
        "--budget 4 min 00 s: 29.0 s were left after 3 of 5 rounds, and a round takes 30.0 s: the others were dropped"
    )
    assert list_rounds(kept) == list_rounds(matrix)[:3]
    assert replace(kept, repeats=5, notes=matrix.notes) == matrix


def test_rounds_that_fit_stay() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", repeats=5, budget="4m")
    assert drop_rounds(matrix, after(matrix, 3), 30.0) is matrix
    assert drop_rounds(matrix, after(matrix, 5), -5.0) is matrix  # nothing is left to drop


def test_two_rounds_are_run_whatever_they_take() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", repeats=5, budget="4m")
    assert drop_rounds(matrix, after(matrix, 1), -100.0) is matrix
    kept = drop_rounds(matrix, after(matrix, 2), -100.0)
    assert kept.repeats == 2
    assert "0 ms were left after 2 of 5 rounds" in kept.notes[-1]


def test_a_round_that_has_begun_is_not_counted() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", repeats=5, budget="4m")
    assert drop_rounds(matrix, after(matrix, 3)[:-1], 0.0).repeats == 2


def test_every_seed_keeps_as_many_trials() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", seeds=[0, 1, 2], repeats=3, budget="4m")
    assert drop_rounds(matrix, after(matrix, 4), 0.0) is matrix  # seed 0 has two trials now, the others have one
    assert drop_rounds(matrix, after(matrix, 3), 89.0).repeats == 1  # three more rounds would take 90 s
    assert drop_rounds(matrix, after(matrix, 3), 90.0) is matrix
    assert drop_rounds(matrix, after(matrix, 6), 0.0).repeats == 2


def test_before_every_seed_has_had_a_round_seeds_are_dropped() -> None:
    matrix = matrix_of(strategies="vanilla,recompute", seeds=[0, 1, 2, 3], repeats=2, budget="4m")
    kept = drop_rounds(matrix, after(matrix, 2), 29.0)
    assert (kept.seeds, kept.repeats) == ((0, 1), 1)
    assert list_rounds(kept) == list_rounds(matrix)[:2]
    assert drop_rounds(matrix, after(matrix, 2), 30.0) is matrix
