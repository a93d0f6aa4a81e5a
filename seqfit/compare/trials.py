"""The trials of a tournament, run one at a time in the order of their rounds; what they say so far, written.

In: a matrix, its folder, a view. Out: outcomes in the folder, and results anew after every round. A trial that has an
outcome is not run again.

    seqfit compare RECIPE               all rounds; outcomes.jsonl
    seqfit compare FOLDER --round 3     one, a task of a job array; rounds/3/outcomes.jsonl, for others write theirs
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from seqfit.compare.budget import drop_rounds
from seqfit.compare.folder import add_outcome, dump_matrix, load_command, read_outcomes
from seqfit.compare.live import Now, View, say_standings, say_where
from seqfit.compare.matrix import list_rounds
from seqfit.compare.records import RUNS, Comparison, Matrix, Outcome, Trial
from seqfit.compare.results import collect_comparison, write_results
from seqfit.compare.trial import read_step_seconds, run_trial
from seqfit.units import format_seconds


def run_rounds(matrix: Matrix, folder: Path, view: View, deadline: float = math.inf) -> None:
    """Every trial that has no outcome yet; `deadline`: of the budget, on the monotonic clock."""
    number = 0
    while number < len(list_rounds(matrix)):
        if run_one_round(matrix, folder, number, view, folder):
            matrix = _keep_to_budget(matrix, folder, view, deadline - time.monotonic())
            write_so_far(folder)
        number += 1


def _keep_to_budget(matrix: Matrix, folder: Path, view: View, left_seconds: float) -> Matrix:
    """Without the rounds that no longer fit, which is written down before the results are."""
    kept = drop_rounds(matrix, read_outcomes(folder), left_seconds)
    if kept is not matrix:
        dump_matrix(kept, folder, command=load_command(folder))
        view.say(kept.notes[-1])
    return kept


def run_one_round(matrix: Matrix, folder: Path, number: int, view: View, place: Path) -> bool:
    """Its trials, `number` counted from 0; outcomes go to `place`. Whether there were any left."""
    rounds = list_rounds(matrix)
    now = Now(matrix, read_outcomes(folder), sum(map(len, rounds)))
    now = replace(now, step_seconds=_find_step_seconds(now, folder))
    missing = find_missing(matrix, number, now.outcomes)
    for trial in missing:
        now = _run_one(now, trial, folder, view, place)
    if missing:
        view.say(f"round {number + 1} of {len(rounds)} is done: {say_standings(now)}")
    return bool(missing)


def find_missing(matrix: Matrix, number: int, outcomes: Sequence[Outcome]) -> list[Trial]:
    """Trials of a round that have no outcome."""
    ended = {_key(outcome) for outcome in outcomes}
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


def _run_one(now: Now, trial: Trial, folder: Path, view: View, place: Path) -> Now:
    """One trial, with the table drawn meanwhile; where things stand after it."""
    started = time.monotonic()

    def tick(step: int) -> None:
        view.show(replace(now, trial=trial, step=step, running_seconds=time.monotonic() - started))

    outcome = run_trial(now.matrix, trial, folder, tick)
    add_outcome(outcome, place)
    now = replace(now, outcomes=[*now.outcomes, outcome])
    now = replace(now, step_seconds=_find_step_seconds(now, folder))
    how = outcome.state.replace("_", " ") + (f" ({outcome.reason})" if outcome.reason else "")
    who = f"{trial.entrant}, seed {trial.seed}, repeat {trial.repeat}"
    view.say(f"{who}: {how} in {format_seconds(outcome.seconds)}; {say_where(now)}")
    return now


def _find_step_seconds(now: Now, folder: Path) -> dict[str, float]:
    """The median of an entrant's trials; for a first look, while the tournament goes on."""
    found: dict[str, list[float]] = {}
    for outcome in now.outcomes:
        run = folder / RUNS / Trial(*_key(outcome)).folder
        seconds = read_step_seconds(run, now.matrix.warm_up) if outcome.state == "finished" else None
        if seconds is not None:
            found.setdefault(outcome.entrant, []).append(seconds)
    return {name: median(values) for name, values in found.items()}
