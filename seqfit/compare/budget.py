"""`--budget 20m`: as many steps as fit, the same number for every trial.

A rehearsal of a few steps of every entrant says what its trials take: a start, which no step shortens, and so much a
step. Then the steps of all trials are cut alike:

    start 10 s and 10 s, steps 1 s and 2 s, 3 rounds, 240 s left     3 x (20 + n x 3) <= 240     n = 20

The rehearsal is no part of the results. It also shows early what fails.

The machine may be busier afterwards. So the clock is looked at after every round, and where the next no longer fits the
rest is dropped: whole rounds, so that every entrant keeps as many trials, and whole repeats, so that every seed does.

    5 rounds of 60 s were expected, and take 90 s; 300 s      after round 3, 30 s are left: rounds 4 and 5 are dropped
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from seqfit.compare.matrix import LEAST_STEPS, list_rounds
from seqfit.compare.records import RUNS, Matrix, Outcome, Trial
from seqfit.compare.trial import read_step_seconds, run_trial
from seqfit.errors import RecipeError, complain
from seqfit.recipe.resolve import RUN_RECIPE
from seqfit.units import format_seconds

REHEARSAL = "rehearsal"
_COUNTED = 3  # steps of a rehearsal, after the warm-up
_MARGIN = 0.95  # of the time: trials differ, and results are written between them
_LEAST_ROUNDS = 2  # one pair says nothing about noise
_NOTE = "--budget"


@dataclass(frozen=True)
class Pace:
    """What the trials of an entrant take."""

    start_seconds: float  # and the end: all that is not a step
    step_seconds: float


def is_decided(matrix: Matrix) -> bool:
    """Whether there is nothing to rehearse for, or it has been done."""
    return matrix.budget_seconds is None or any(note.startswith(_NOTE) for note in matrix.notes)


def rehearse(matrix: Matrix, folder: Path, entrants: Iterable[str]) -> list[Pace]:
    """A short trial of each, in a folder of its own that is removed; those that fail count with the time they took."""
    place = folder / REHEARSAL
    place.mkdir(exist_ok=True)
    shutil.copy(folder / RUN_RECIPE, place)
    short = replace(matrix, steps=matrix.warm_up + _COUNTED)
    paces = []
    for name in entrants:
        trial = Trial(name, matrix.seeds[0], 0)
        outcome = run_trial(short, trial, place)
        paces.append(_measure_pace(short, outcome, place / RUNS / trial.folder))
    shutil.rmtree(place)
    return paces


def _measure_pace(short: Matrix, outcome: Outcome, run: Path) -> Pace:
    step_seconds = read_step_seconds(run, short.warm_up) if outcome.state == "finished" else None
    if step_seconds is None:
        return Pace(outcome.seconds, 0.0)
    return Pace(max(0.0, outcome.seconds - short.steps * step_seconds), step_seconds)


def cut_steps(matrix: Matrix, paces: Sequence[Pace], left_seconds: float) -> Matrix:
    """The matrix with as many steps as fit what is left of the budget, and a note that says so."""
    rounds = matrix.repeats * len(matrix.seeds)
    start, step = (sum(values) for values in zip(*((p.start_seconds, p.step_seconds) for p in paces), strict=True))
    usable = _MARGIN * left_seconds / rounds - start
    fitting = matrix.steps if step == 0 else math.floor(usable / step)
    least = matrix.warm_up + LEAST_STEPS
    if fitting < least:
        raise _too_short(matrix, rounds * (start + least * step) / _MARGIN, left_seconds)
    steps = min(matrix.steps, fitting)
    rehearsed = f"a rehearsal took {format_seconds(start)} to start all entrants once, {format_seconds(step)} a step"
    decided = f"all {steps} steps fit" if steps == matrix.steps else f"trials have {steps} steps, not {matrix.steps}"
    note = f"{_NOTE} {format_seconds(matrix.budget_seconds or 0)}: {rehearsed}; {decided}"
    return replace(matrix, steps=steps, notes=(*matrix.notes, note))


def drop_rounds(matrix: Matrix, outcomes: Sequence[Outcome], left_seconds: float) -> Matrix:
    """The matrix without the rounds that are not done yet and a note, where the next no longer fits what is left of the
    budget; else the matrix itself. It may be asked after every round."""
    rounds, seeds = list_rounds(matrix), len(matrix.seeds)
    done, round_seconds = _count_done(matrix, outcomes), _measure_round(outcomes)
    ends_evenly = done < seeds or done % seeds == 0
    if not ends_evenly or not _LEAST_ROUNDS <= done < len(rounds):
        return matrix
    coming = 1 if done < seeds else seeds  # the next after which it may end
    if coming * round_seconds <= left_seconds:
        return matrix
    left = f"{format_seconds(max(0.0, left_seconds))} were left after {done} of {len(rounds)} rounds"
    dropped = f"{left}, and a round takes {format_seconds(round_seconds)}: the others were dropped"
    note = f"{_NOTE} {format_seconds(matrix.budget_seconds or 0)}: {dropped}"
    return replace(matrix, seeds=matrix.seeds[:done], repeats=max(1, done // seeds), notes=(*matrix.notes, note))


def _count_done(matrix: Matrix, outcomes: Sequence[Outcome]) -> int:
    """Rounds from the first on of which every trial has ended."""
    ended = {Trial(outcome.entrant, outcome.seed, outcome.repeat) for outcome in outcomes}
    whole = [ended.issuperset(trials) for trials in list_rounds(matrix)]
    return [*whole, False].index(False)


def _measure_round(outcomes: Sequence[Outcome]) -> float:
    """One trial of each entrant, by the mean of those that have ended."""
    took: dict[str, list[float]] = {}
    for outcome in outcomes:
        took.setdefault(outcome.entrant, []).append(outcome.seconds)
    return sum(map(mean, took.values()))


def _too_short(matrix: Matrix, needed_seconds: float, left_seconds: float) -> RecipeError:
    rest = format_seconds(max(0.0, left_seconds))
    return RecipeError(
        complain(
            f"--budget is {format_seconds(matrix.budget_seconds or 0)}, of which planning and a rehearsal left {rest}",
            f"with {matrix.warm_up + LEAST_STEPS} steps, the least, all trials take {format_seconds(needed_seconds)}",
            "Give more, fewer entrants, --seeds or --repeats",
        )
    )
