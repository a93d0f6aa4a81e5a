from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from seqfit.comparison.live import (
    ComparisonLines,
    ComparisonProgress,
    ComparisonTable,
    build_trial_table,
    choose_comparison_view,
    describe_results,
    describe_trials,
    list_cells,
)
from seqfit.comparison.records import CandidateResult, Figure, Outcome, Trial
from seqfit.tables import to_rich
from tests.comparison.comparisons import matrix_of

MATRIX = matrix_of(strategies="baseline,fp16,recompute", repeats=2, steps=40)
DONE = [
    Outcome("baseline", 0, 0, "finished", "", 60.0, 0.0),
    Outcome("recompute", 0, 0, "out_of_memory", "out of memory", 20.0, 0.0),
]
STEPS = {"baseline": Figure((1.0,), 1.0, None), "recompute": Figure((1.25,), 1.25, None, 0.25)}
RESULTS = [
    CandidateResult(candidate, "finished", "", 1, {"step_seconds": STEPS[candidate.name]})
    for candidate in MATRIX.candidates
    if candidate.name in STEPS
]
NOW = ComparisonProgress(MATRIX, DONE, 4, results=RESULTS)


def test_what_is_left_takes_as_long_as_trials_of_the_same_candidate_did() -> None:
    assert NOW.left_seconds() == 60 + 20
    assert replace(NOW, running_seconds=50.0).left_seconds() == 30
    assert replace(NOW, running_seconds=500.0).left_seconds() == 0


def test_a_candidate_that_has_not_run_yet_is_taken_to_be_like_the_others() -> None:
    assert replace(NOW, outcomes=DONE[:1]).left_seconds() == 60 + 2 * 60
    assert replace(NOW, outcomes=[]).left_seconds() is None


def test_what_runs_is_said_with_its_step() -> None:
    running = replace(NOW, trial=Trial("recompute", 0, 1), step=17)
    assert describe_trials(running) == (
        "comparison: trial 3 of 4; recompute, seed 0, repeat 1: step 17 of 40; about 1 min 20 s left"
    )
    assert describe_trials(replace(NOW, outcomes=[])) == "comparison: 0 of 4 trials finished"
    assert describe_trials(replace(NOW, outcomes=DONE * 2)) == "comparison: 4 of 4 trials finished"


def test_a_line_of_the_table_has_trials_time_and_share() -> None:
    baseline, fp16, recompute = MATRIX.candidates
    assert list_cells(NOW, baseline) == ["baseline", "baseline", "1 of 2", "1 s", ""]
    assert list_cells(NOW, fp16) == ["fp16", "lossy", "only predicted", "", ""]
    assert list_cells(NOW, recompute) == ["recompute", "lossless", "1 of 2, out of memory", "1.25 s", "125%"]


def test_a_line_of_results_leaves_out_candidates_without_a_time() -> None:
    assert describe_results(NOW) == "time per step: baseline 1 s, recompute 1.25 s (125%)"
    assert describe_results(replace(NOW, results=[])) == "no trial has finished yet"


def test_lines_are_printed_with_their_time_and_nothing_is_drawn() -> None:
    stream = io.StringIO()
    with ComparisonLines(Console(file=stream, highlight=False, markup=False)) as view:
        view.log("[a] begins")
        view.show(NOW)
    assert stream.getvalue()[8:] == "  [a] begins\n"


def test_a_terminal_has_the_table_below_the_lines() -> None:
    stream = io.StringIO()
    with ComparisonTable(Console(file=stream, force_terminal=True, width=100)) as view:
        view.log("a line")
        view.show(NOW)
    said = stream.getvalue()
    assert "a line" in said
    assert "of baseline" in said
    assert "out of memory" in said


def test_the_table_fits_eighty_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    assert console.measure(to_rich(build_trial_table(NOW))).maximum <= 80


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqfit.comparison.live.Console.is_terminal", False)
    assert type(choose_comparison_view()) is ComparisonLines
