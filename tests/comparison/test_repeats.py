from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.comparison import repeats as module
from seqfit.comparison.live import ComparisonView
from seqfit.comparison.records import Matrix, Trial, add_outcome, dump_matrix, read_outcomes, repeat_folder
from seqfit.comparison.repeats import find_all_missing, find_missing, run_one_repeat
from tests.comparison.comparisons import matrix_of, pretend


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """Two candidates, three rounds; nobody is started."""
    built = matrix_of(strategies="baseline,recompute", repeats=3, steps=5)
    dump_matrix(built, tmp_path)
    monkeypatch.setattr(module, "run_trial", pretend)
    return built


def test_a_repeat_notes_its_outcomes_in_its_own_file_and_all_are_read(tmp_path: Path, matrix: Matrix) -> None:
    place = repeat_folder(tmp_path, 1)
    place.mkdir(parents=True)
    add_outcome(pretend(matrix, Trial("baseline", 0, 0), tmp_path), tmp_path)
    assert run_one_repeat(matrix, tmp_path, 1, ComparisonView(), place)
    assert not run_one_repeat(matrix, tmp_path, 1, ComparisonView(), place)  # nothing is left of it
    assert len((place / "outcomes.jsonl").read_text().splitlines()) == 2
    found = {(outcome.candidate, outcome.repeat) for outcome in read_outcomes(tmp_path)}
    assert found == {("baseline", 0), ("recompute", 1), ("baseline", 1)}
    assert find_missing(matrix, 0, read_outcomes(tmp_path)) == [Trial("recompute", 0, 0)]
    assert len(find_all_missing(matrix, read_outcomes(tmp_path))) == 3


def test_all_repeats_leave_nothing_missing_and_results_after_every_trial(tmp_path: Path, matrix: Matrix) -> None:
    for number in range(3):
        run_one_repeat(matrix, tmp_path, number, ComparisonView(), tmp_path)
    assert find_all_missing(matrix, read_outcomes(tmp_path)) == []
    assert (tmp_path / "results.json").is_file()


def test_a_trial_that_was_stopped_is_still_missing(tmp_path: Path, matrix: Matrix) -> None:
    outcome = pretend(matrix, Trial("baseline", 0, 0), tmp_path)
    add_outcome(replace(outcome, state="unfinished"), tmp_path)
    assert Trial("baseline", 0, 0) in find_missing(matrix, 0, read_outcomes(tmp_path))
