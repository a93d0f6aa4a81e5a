from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison import repeats as budget
from seqfit.comparison.records import Matrix, Outcome, Trial
from seqfit.comparison.repeats import Clock, OutOfTime, Pace, begin, decide, ended_by, has_time, is_decided, read_pace
from seqfit.rundir import files
from tests.comparison.comparisons import matrix_of, recipe_values, step_record

NO_ROWS = 1e9  # examples per step: scoring takes no time


def four(**asked: Any) -> Matrix:
    return matrix_of(strategies="baseline,accumulation,recompute,adafactor", **asked)


def test_the_example_of_the_docstring_holds() -> None:
    matrix = four(steps=15, repeats=5, budget="300s")
    decided = decide(matrix, matrix, Pace(5.0, 1.0, NO_ROWS), 280.0)
    assert decided.steps == matrix.warm_up + 6
    assert "what fits: 4 candidates, 4 of 5 repeats, 9 of 15 steps each" in decided.notes[-1]


def test_what_is_affordable_is_said_and_nothing_else_changes() -> None:
    matrix = four(steps=15, repeats=5, budget="1h")
    decided = decide(matrix, matrix, Pace(5.0, 1.0, NO_ROWS), 3600.0)
    assert decided.notes[-1].startswith(
        "--budget 1 h 00 min: the first trial takes 5.0 s before its first timed step and 1.0 s per step; "
        "what fits: 4 candidates, 5 of 5 repeats, 15 steps each"
    )
    assert replace(decided, notes=matrix.notes, scored_rows=None, is_decided=False) == matrix


def test_a_budget_too_small_for_one_repeat_is_not_refused() -> None:
    matrix = four(steps=15, repeats=5, budget="60s")
    decided = decide(matrix, matrix, Pace(20.0, 10.0, NO_ROWS), 30.0)
    assert decided.steps == 6
    assert "less than one repeat" in decided.notes[-1]


def test_before_any_step_is_timed_trials_have_the_fewest_steps() -> None:
    matrix = four(steps=15, repeats=5, budget="60s")
    decided = decide(matrix, matrix, None, 40.0)
    assert (decided.steps, decided.scored_rows) == (6, 128)
    assert "no step has been timed yet; what fits: 4 candidates" in decided.notes[-1]


def test_a_first_trial_begins_with_little_where_its_share_of_the_budget_is_short() -> None:
    short, long = four(steps=15, repeats=5, budget="2m"), four(steps=15, repeats=5, budget="13m")
    assert (begin(short).steps, begin(short).scored_rows) == (6, 128)
    assert begin(long) == replace(long, scored_rows=512)


def test_a_first_trial_that_began_right_goes_on() -> None:
    matrix = four(steps=15, repeats=5, budget="2m")
    decided = decide(matrix, begin(matrix), Pace(8.0, 1.5, 32), 105.0)
    assert (decided.steps, decided.scored_rows) != (15, None)
    assert decided.steps == begin(matrix).steps


def test_rows_are_limited_where_scoring_would_take_too_long_and_never_raised() -> None:
    matrix = four(steps=15, repeats=5, budget="10m")
    slow = decide(matrix, matrix, Pace(5.0, 4.0, 32), 560.0)
    assert slow.scored_rows == 64  # a quarter of 105 s for each candidate, at 0.375 s per generated answer
    few = matrix_of(recipe=recipe_values(eval={"limit": 16}), strategies="baseline,recompute", budget="10m")
    assert decide(few, few, Pace(5.0, 4.0, 32), 560.0).scored_rows is None


def test_a_budget_is_decided_once() -> None:
    matrix = four(budget="1h")
    assert is_decided(replace(matrix, budget_seconds=None))
    assert not is_decided(matrix)
    assert is_decided(decide(matrix, matrix, Pace(5.0, 1.0, NO_ROWS), 3600.0))


def test_the_pace_is_that_of_counted_steps_or_of_the_warm_up_where_none_counts_yet(tmp_path: Path) -> None:
    assert read_pace(tmp_path, 2, 90.0) is None
    records = [asdict(step_record(number, 2.0 if number > 2 else 3.0)) for number in range(1, 5)]
    (tmp_path / files.STEPS).write_text("".join(json.dumps(one) + "\n" for one in records))
    assert read_pace(tmp_path, 2, 90.0) == Pace(103 - 2 - 90, 2.0, 32)
    assert read_pace(tmp_path, 9, 90.0) == Pace(101 - 3 - 90, 2.5, 32)


def test_a_repeat_has_time_by_what_its_candidates_took_last() -> None:
    trials = [Trial("a", 0, 1), Trial("b", 0, 1)]
    took = [("a", 90.0), ("b", 20.0), ("a", 10.0)]
    outcomes = [Outcome(name, 0, 0, "finished", "", seconds, 0.0) for name, seconds in took]
    assert has_time(trials, outcomes, Clock(35.0, 0.0, time.monotonic()))
    assert not has_time(trials, outcomes, Clock(35.0, 10.0, time.monotonic()))
    assert has_time(trials, outcomes, Clock(None))


def test_a_budget_covers_what_was_used_before_and_the_writing_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget.time, "monotonic", lambda: 1060.0)
    clock = Clock(600.0, 100.0, 1000.0)
    assert clock.left_seconds == 600 - 100 - 60 - 18
    assert clock.must_decide  # a tenth
    assert not Clock(601.0, 0.0, 1000.0).must_decide
    assert not Clock(120.0, 0.0, 1041.0).must_decide  # 20 s at least
    assert not Clock(None).must_decide


def test_the_end_of_a_budget_ends_whatever_runs() -> None:
    with pytest.raises(OutOfTime), ended_by(Clock(3.01, 0.0, time.monotonic())):
        time.sleep(60)
    with ended_by(Clock(None)):
        pass
