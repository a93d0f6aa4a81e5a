from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.compare import budget
from seqfit.compare.budget import Pace, cut_steps, is_decided, rehearse
from seqfit.compare.records import Matrix, Outcome, Trial
from seqfit.compare.trial import Tick
from seqfit.errors import RecipeError
from seqfit.recipe.load import RUN_RECIPE
from tests.compare.tournaments import matrix_of, pretend

PACES = [Pace(10, 1), Pace(10, 2)]


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
