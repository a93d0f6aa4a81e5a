"""The trials of a comparison, run one at a time in the order of their rounds; what they say so far, written.

In: a matrix, its folder, a view. Out: outcomes in the folder, and results after every trial. A trial that has an
outcome is not run again, unless it was stopped in the middle.

    seqfit compare RECIPE               all rounds; outcomes.jsonl
    seqfit compare FOLDER --round 3     one, a task of a job array; rounds/3/outcomes.jsonl, because others write theirs
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seqfit.compare.budget import Clock, OutOfTime, begin, decide, is_decided, read_pace
from seqfit.compare.folder import add_outcome, dump_matrix, load_command, read_outcomes
from seqfit.compare.live import Now, View, say_standings, say_where
from seqfit.compare.matrix import LEAST_STEPS, list_rounds
from seqfit.compare.records import RUNS, Comparison, Matrix, Outcome, Trial
from seqfit.compare.results import collect_comparison, write_results
from seqfit.compare.trial import Tick, name_node, read_last_step, run_trial
from seqfit.errors import Stopped
from seqfit.units import format_seconds


class _Decided(Exception):
    """The budget affords less than the trial that runs was started with."""


def run_first_trial(matrix: Matrix, folder: Path, view: View, clock: Clock) -> Matrix:
    """The dry run of a budget: the first trial, until it is known what all trials can have. That is written down.

    Where it is what the trial began with, it goes on to its end and counts. One that fails says nothing: the next does.
    """
    now, begun, decided = _start(matrix, folder), begin(matrix), matrix
    run, started = folder, 0.0

    def look() -> None:
        nonlocal decided
        pace = read_pace(run, matrix.warm_up, started)
        decided = _write_decided(decide(matrix, begun, pace, clock.left_seconds), folder, view)

    def tick(step: int) -> None:
        view.show(replace(now, matrix=begun, trial=trial, step=step, running_seconds=time.time() - started))
        if not is_decided(decided) and (step >= matrix.warm_up + LEAST_STEPS or clock.must_know):
            look()
            if not _is_alike(decided, begun):
                raise _Decided

    for trial in find_missing(matrix, 0, now.outcomes):
        if clock.must_know:
            break
        run, started = folder / RUNS / trial.folder, time.time()
        view.say(f"dry run: {trial.entrant}, to see what the budget affords")
        try:
            outcome = _run_or_keep(begun, trial, folder, tick, folder)
        except _Decided:
            return decided
        if outcome.state == "finished" and not is_decided(decided):
            look()
        if outcome.state != "finished" or _is_alike(decided, begun):
            add_outcome(outcome, folder)
            now = _report(replace(now, matrix=decided), trial, outcome, folder, view)
        if is_decided(decided):
            return decided
    look()
    return decided


def _is_alike(one: Matrix, other: Matrix) -> bool:
    return (one.steps, one.scored_rows) == (other.steps, other.scored_rows)


def _write_decided(matrix: Matrix, folder: Path, view: View) -> Matrix:
    dump_matrix(matrix, folder, command=load_command(folder))
    view.say(matrix.notes[-1])
    return matrix


def run_one_round(matrix: Matrix, folder: Path, number: int, view: View, place: Path) -> bool:
    """Its trials, `number` counted from 0; outcomes go to `place`. Whether there were any left."""
    now = _start(matrix, folder)
    missing = find_missing(matrix, number, now.outcomes)
    for trial in missing:
        now = _run_one(now, trial, folder, view, place)
    if missing:
        view.say(f"repeat {number + 1} of {len(list_rounds(matrix))} is done: {say_standings(now)}")
    return bool(missing)


def find_missing(matrix: Matrix, number: int, outcomes: Sequence[Outcome]) -> list[Trial]:
    """Trials of a round that have no outcome."""
    ended = {_key(outcome) for outcome in outcomes if outcome.state != "unfinished"}
    return [trial for trial in list_rounds(matrix)[number] if _key(trial) not in ended]


def find_all_missing(matrix: Matrix, outcomes: Sequence[Outcome]) -> list[Trial]:
    """Of all rounds."""
    return [trial for number in range(len(list_rounds(matrix))) for trial in find_missing(matrix, number, outcomes)]


def write_so_far(folder: Path) -> Comparison:
    """Results of what has ended."""
    comparison = collect_comparison(folder)
    write_results(comparison)
    return comparison


def _key(item: Trial | Outcome) -> tuple[str, int, int]:
    return item.entrant, item.seed, item.repeat


def _start(matrix: Matrix, folder: Path) -> Now:
    """Where things stand before a trial."""
    outcomes = [outcome for outcome in read_outcomes(folder) if outcome.state != "unfinished"]
    return _look(Now(matrix, outcomes, sum(map(len, list_rounds(matrix)))), folder)


def _look(now: Now, folder: Path) -> Now:
    """With the step times of the tables: there is one definition of them."""
    return replace(now, standings=collect_comparison(folder).standings if now.outcomes else ())


def _run_one(now: Now, trial: Trial, folder: Path, view: View, place: Path) -> Now:
    """One trial, with the table drawn meanwhile; where things stand after it."""
    started = time.monotonic()

    def tick(step: int) -> None:
        view.show(replace(now, trial=trial, step=step, running_seconds=time.monotonic() - started))

    outcome = _run_or_keep(now.matrix, trial, folder, tick, place)
    add_outcome(outcome, place)
    if place == folder:  # rounds that are jobs write at their end, one at a time
        write_so_far(folder)
    return _report(now, trial, outcome, folder, view)


def _report(now: Now, trial: Trial, outcome: Outcome, folder: Path, view: View) -> Now:
    now = _look(replace(now, outcomes=[*now.outcomes, outcome]), folder)
    how = outcome.state.replace("_", " ") + (f" ({outcome.reason})" if outcome.reason else "")
    who = f"{trial.entrant}, seed {trial.seed}, repeat {trial.repeat}"
    view.say(f"{who}: {how} in {format_seconds(outcome.seconds)}; {say_where(now)}")
    return now


def _run_or_keep(matrix: Matrix, trial: Trial, folder: Path, tick: Tick, place: Path) -> Outcome:
    """How it ended; where it is stopped in the middle, the times of its counted steps are kept."""
    started = time.monotonic()
    try:
        return run_trial(matrix, trial, folder, tick)
    except (KeyboardInterrupt, Stopped, OutOfTime):
        step = read_last_step(folder / RUNS / trial.folder)
        if step >= matrix.warm_up + LEAST_STEPS:
            reason, seconds = f"stopped after {step} of {matrix.steps} steps", time.monotonic() - started
            add_outcome(Outcome(*_key(trial), "unfinished", reason, seconds, time.time(), name_node()), place)
        raise
