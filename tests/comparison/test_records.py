from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.comparison.records import MATRIX as MATRIX_FILE
from seqfit.comparison.records import (
    OUTCOMES,
    Outcome,
    Prediction,
    add_outcome,
    dump_matrix,
    dump_predictions,
    dump_results,
    load_command,
    load_matrix,
    load_predictions,
    read_outcomes,
    read_results,
)
from seqfit.comparison.results import collect_comparison
from seqfit.errors import RunError
from tests.comparison.made_runs import MATRIX, play

DONE = Outcome("baseline", 0, 0, "finished", "", 31.5, 1_770_000_000.25)


def test_a_matrix_comes_back_as_it_was_with_its_command(tmp_path: Path) -> None:
    matrix = replace(
        MATRIX, recipe="task:\n  source: 'a: {b}'\n\n# comment\n", budget_seconds=1200.0, notes=("20 steps fit",)
    )
    dump_matrix(matrix, tmp_path, command="seqfit compare demo")
    assert load_matrix(tmp_path) == matrix
    assert load_command(tmp_path) == "seqfit compare demo"


def test_predictions_come_back_and_none_are_none(tmp_path: Path) -> None:
    assert load_predictions(tmp_path) == []
    known = Prediction("fp16", "Tesla V100", 2**33, 0.21, 5e4, True, parts={"weights": 2**31})
    unknown = Prediction("ddp2", "this machine", None, None, None, None, "one core")
    dump_predictions([known, unknown], tmp_path)
    assert load_predictions(tmp_path) == [known, unknown]


def test_predictions_from_before_peaks_were_taken_apart_come_back_whole(tmp_path: Path) -> None:
    known = Prediction("fp16", "Tesla V100", 2**33, 0.21, 5e4, True)
    path = dump_predictions([known], tmp_path)
    (stored,) = json.loads(path.read_text())
    assert stored.pop("parts") == {}
    path.write_text(json.dumps([stored]))
    assert load_predictions(tmp_path) == [known]


def test_outcomes_are_read_in_their_order(tmp_path: Path) -> None:
    assert read_outcomes(tmp_path) == []
    other = replace(DONE, candidate="fp16", state="out_of_memory", reason="out of memory")
    add_outcome(DONE, tmp_path)
    add_outcome(other, tmp_path)
    assert read_outcomes(tmp_path) == [DONE, other]


def test_a_truncated_last_outcome_is_ignored_and_removed_by_the_next(tmp_path: Path) -> None:
    add_outcome(DONE, tmp_path)
    with (tmp_path / OUTCOMES).open("a") as stream:
        stream.write('{"candidate": "fp16", "se')
    assert read_outcomes(tmp_path) == [DONE]
    again = replace(DONE, repeat=1)
    add_outcome(again, tmp_path)
    assert read_outcomes(tmp_path) == [DONE, again]


def test_of_a_trial_that_was_made_twice_the_last_outcome_counts(tmp_path: Path) -> None:
    add_outcome(replace(DONE, state="failed"), tmp_path)
    add_outcome(DONE, tmp_path)
    assert read_outcomes(tmp_path) == [DONE]


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    comparison = collect_comparison(play(tmp_path / "made", recompute=1.2))
    dump_results(comparison, tmp_path)
    assert read_results(tmp_path) == read_results(tmp_path / "results.json") == comparison


def test_a_field_that_a_later_version_has_added_is_passed_over(tmp_path: Path) -> None:
    dump_matrix(MATRIX, tmp_path)
    with (tmp_path / MATRIX_FILE).open("a") as stream:
        stream.write("colour: blue\n")
    assert load_matrix(tmp_path) == MATRIX


@pytest.mark.parametrize("text", ["", "[1, 2]\n", "name: x\n", "a: [\n"])
def test_a_damaged_matrix_is_reported_with_its_place(tmp_path: Path, text: str) -> None:
    (tmp_path / MATRIX_FILE).write_text(text)
    with pytest.raises(RunError, match=r"comparison\.yaml"):
        load_matrix(tmp_path)


def test_a_folder_that_is_no_comparison_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the files that `seqfit compare` wrote"):
        load_matrix(tmp_path)
    with pytest.raises(RunError, match=r"results\.json"):
        read_results(tmp_path)
