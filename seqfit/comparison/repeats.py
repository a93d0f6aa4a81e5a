"""The trials of a comparison, run one at a time in the order of their rounds; what they say so far, written.

In: a matrix, its folder, a view. Out: outcomes in the folder, and results after every trial. A trial that has an
outcome is not run again, unless it was stopped in the middle.

    seqfit compare RECIPE               all rounds; outcomes.jsonl
    seqfit compare FOLDER --round 3     one, a task of a job array; rounds/3/outcomes.jsonl, because others write theirs

`--budget 20m`: what it affords is known after a tenth of it, and it ends when it says.

The first trial is the dry run: with few steps where a trial's share of the budget is short, else with all. As soon as
two of its steps count, or after a tenth of the budget (at least 20 s), it is decided what all trials have: steps, and
rows that are scored. Where that is what it began with, the trial goes on and is the first repeat; else it begins again.
An example without rows:

    5 s before the first counted step, 1 s per step, 12 counted steps and 5 repeats asked for, 4 candidates, 280 s left:
    0.9 x 280 / (4 x 1.2) = 52 s for each candidate, where 0.9 and 1.2 are for what is not known yet

    counted steps   first repeat, watched   others    repeats that fit
    12              5 + 12 + 6 = 23 s       17 s      2
    6               5 + 6 + 6 = 17 s        11 s      4       three were wanted: 6 counted steps it is

Steps are halved and rows are a power of two, so that a comparison that was killed before this decides the same again.
Then the clock decides: a repeat that no longer fits is not begun, and at the end of the budget what runs is stopped.
Nothing is refused, and what is missing is named (verdict.py).
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from types import FrameType

from seqfit.comparison.live import ComparisonView, Now, describe_results, say_where
from seqfit.comparison.matrix import LEAST_TIMED_STEPS, build_recipe, list_repeats
from seqfit.comparison.records import (
    TRIAL_RUNS,
    Comparison,
    Matrix,
    Outcome,
    Trial,
    add_outcome,
    dump_matrix,
    load_command,
    read_outcomes,
)
from seqfit.comparison.results import collect_comparison, write_results
from seqfit.comparison.trial import Tick, name_node, read_last_step, run_trial
from seqfit.errors import Stopped
from seqfit.rundir import files
from seqfit.rundir.reader import read_records
from seqfit.units import format_seconds

_KNOWN_SHARE, _KNOWN_SECONDS = 0.1, 20.0  # of the budget, whichever is longer: then it is decided
_CLOSING_SHARE, _CLOSING_SECONDS = 0.03, 3.0  # for the tables and the page, whichever is longer
_USABLE = 0.9  # of what is left: trials differ
_SLOWER = 1.2  # than the one that was timed: a guess for the other candidates
_WANTED_ROUNDS = 3  # before more steps are taken: two leave a wide interval
_SCORING_SHARE = 0.25  # of what is left, at most
_LEAST_ROWS, _FEW_ROWS, _MOST_ROWS = 32, 128, 512
_TOO_MANY = 4  # times the rows that are affordable: then a trial that has begun is begun again
_FEW_STEPS = 3  # that count, where more are not affordable
_SHORT_SECONDS = 30.0  # of a trial: about ten of them are its start
_ROW_SHARE = {True: 0.3, False: 3.0}  # of what a row takes in training: a classifier's forward pass; generated text
_WATCHED_STEPS = 6  # that the end of a first repeat takes: up to three of the largest are made again, and watched
_PREDICTION_SECONDS = 3.0  # each; measured: 2 s for an encoder of 22M weights
_PREDICTION_SHARE = 0.15  # of the budget, at most


class OutOfTime(Exception):
    """The budget has ended."""


@dataclass(frozen=True)
class Clock:
    """What is left of a budget; one that is None is endless."""

    budget_seconds: float | None
    used_seconds: float = 0.0  # by trials of an earlier start
    began: float = 0.0  # on the monotonic clock

    @property
    def left_seconds(self) -> float:
        """For trials: the tables and the page come after them."""
        if self.budget_seconds is None:
            return math.inf
        closing = max(_CLOSING_SECONDS, _CLOSING_SHARE * self.budget_seconds)
        return self.budget_seconds - closing - self.used_seconds - (time.monotonic() - self.began)

    @property
    def must_know(self) -> bool:
        """Whether it is time to decide what is affordable."""
        if self.budget_seconds is None:
            return False
        return time.monotonic() - self.began >= max(_KNOWN_SECONDS, _KNOWN_SHARE * self.budget_seconds)

    @property
    def prediction_seconds(self) -> float:
        """That predictions for other GPUs may take."""
        return math.inf if self.budget_seconds is None else _PREDICTION_SHARE * self.budget_seconds


@contextmanager
def ended_by(clock: Clock) -> Iterator[None]:
    """`OutOfTime` wherever the block is when the budget ends; in other threads than the main one, between trials."""
    is_main = threading.current_thread() is threading.main_thread()
    if math.isinf(clock.left_seconds) or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(clock.left_seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Pace:
    """What a trial takes."""

    before_seconds: float  # the first counted step: start and warm-up
    step_seconds: float
    examples: float  # per step


def is_decided(matrix: Matrix) -> bool:
    """Whether there is no budget, or it is known what it affords."""
    return matrix.budget_seconds is None or matrix.is_decided


def read_pace(run: Path, warm_up: int, started: float) -> Pace | None:
    """Of a trial that runs since `started` (Unix time): of its warm-up if no step counts yet, None without a step."""
    steps = read_records(run / files.STEPS)
    counted = [record for record in steps if record["step"] > warm_up] or steps
    if not counted:
        return None
    first = counted[0]
    before = max(0.0, first["time"] - first["step_seconds"] - started)
    return Pace(before, median(one["step_seconds"] for one in counted), mean(one["examples"] for one in counted))


def begin(matrix: Matrix) -> Matrix:
    """What the first trial has: little, if little is affordable in any case."""
    share = _USABLE * (matrix.budget_seconds or 0.0) / (_count_each(matrix) * _WANTED_ROUNDS)
    if share < _SHORT_SECONDS:
        return replace(matrix, steps=min(_list_steps(matrix)), scored_rows=_limit_rows(matrix, _FEW_ROWS))
    return replace(matrix, scored_rows=_limit_rows(matrix, _MOST_ROWS))


def decide(matrix: Matrix, begun: Matrix, pace: Pace | None, left_seconds: float) -> Matrix:
    """The matrix with the steps and scored rows that fit, and a note that says so.

    `begun`: with those of the first trial, which goes on if there is no reason against it; `pace`: of that trial.
    """
    candidates = sum(not entrant.impossible for entrant in matrix.entrants)
    if pace is None:
        given = f"no step has been timed yet; affordable: {candidates} candidates, as many repeats as fit,"
        fewest = replace(matrix, steps=min(_list_steps(matrix)), scored_rows=_limit_rows(matrix, _FEW_ROWS))
        return _note(fewest, given, matrix.steps)
    predicted = len(matrix.entrants) * len(matrix.targets) * _PREDICTION_SECONDS
    usable = _USABLE * left_seconds - min(predicted, _PREDICTION_SHARE * (matrix.budget_seconds or 0.0))
    share = usable / _count_each(matrix)
    is_classifier = build_recipe(matrix, matrix.reference, matrix.seeds[0]).model.kind == "classifier"
    row_seconds = _ROW_SHARE[is_classifier] * pace.step_seconds / pace.examples
    rows = 2 ** math.floor(math.log2(min(max(_LEAST_ROWS, _SCORING_SHARE * share / row_seconds), _MOST_ROWS)))
    asked = matrix.repeats * len(matrix.seeds)
    for steps in _list_steps(matrix):
        trial = pace.before_seconds + (steps - matrix.warm_up) * pace.step_seconds
        is_begun = steps == begun.steps and _count_scored(begun) <= _TOO_MANY * rows
        limit = begun.scored_rows if is_begun else _limit_rows(matrix, rows)
        scored = trial + _WATCHED_STEPS * pace.step_seconds + min(_count_scored(begun), rows) * row_seconds
        rounds = _count_rounds(share, [scored] * len(matrix.seeds), trial, asked)
        if rounds >= min(_WANTED_ROUNDS, asked):
            break
    before, step = format_seconds(pace.before_seconds), format_seconds(pace.step_seconds)
    took = f"{before} before its first counted step and {step} per step"
    fits = f"{rounds} of {asked} repeats" if rounds else "less than one repeat of all"
    given = f"the first trial takes {took}; affordable: {candidates} candidates, {fits},"
    return _note(replace(matrix, steps=steps, scored_rows=limit), given, matrix.steps)


def has_time(trials: Sequence[Trial], outcomes: Sequence[Outcome], clock: Clock) -> bool:
    """Whether these fit, by the last trial of each candidate."""
    last = {outcome.entrant: outcome.seconds for outcome in outcomes}
    return sum(last.get(trial.entrant, 0.0) for trial in trials) <= clock.left_seconds


def _note(matrix: Matrix, given: str, asked_steps: int) -> Matrix:
    of = "" if asked_steps == matrix.steps else f" of {asked_steps}"
    rows = "" if matrix.scored_rows is None else f", scored on at most {matrix.scored_rows} rows"
    note = f"--budget {format_seconds(matrix.budget_seconds or 0)}: {given} {matrix.steps}{of} steps each{rows}"
    return replace(matrix, notes=(*matrix.notes, note), is_decided=True)


def _list_steps(matrix: Matrix) -> list[int]:
    """15 with 3 of warm-up: 15, 9, 6."""
    counted = [matrix.steps - matrix.warm_up]
    while counted[-1] >= 2 * _FEW_STEPS:
        counted.append(counted[-1] // 2)
    return [matrix.warm_up + number for number in counted]


def _limit_rows(matrix: Matrix, rows: int) -> int | None:
    """None where the recipe scores no more than these."""
    return None if _count_scored(replace(matrix, scored_rows=None)) <= rows else rows


def _count_scored(matrix: Matrix) -> float:
    """Rows, at most."""
    return build_recipe(matrix, matrix.reference, matrix.seeds[0]).eval.limit or math.inf


def _count_each(matrix: Matrix) -> float:
    """Trials of a round, in trials of the candidate that is timed."""
    return sum(not entrant.impossible for entrant in matrix.entrants) * _SLOWER


def _count_rounds(usable_seconds: float, scored: Sequence[float], repeat_seconds: float, asked: int) -> int:
    """Repeats of all candidates: the first of every seed is scored, the others are not."""
    rounds = 0
    for seconds in (*scored, *[repeat_seconds] * (asked - len(scored))):
        usable_seconds -= seconds
        if usable_seconds < 0:
            break
        rounds += 1
    return rounds


class _Decided(Exception):
    """The budget affords less than the trial that runs was started with."""


def run_first_trial(matrix: Matrix, folder: Path, view: ComparisonView, clock: Clock) -> Matrix:
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
        if not is_decided(decided) and (step >= matrix.warm_up + LEAST_TIMED_STEPS or clock.must_know):
            look()
            if not _is_alike(decided, begun):
                raise _Decided

    for trial in find_missing(matrix, 0, now.outcomes):
        if clock.must_know:
            break
        run, started = folder / TRIAL_RUNS / trial.folder, time.time()
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


def _write_decided(matrix: Matrix, folder: Path, view: ComparisonView) -> Matrix:
    dump_matrix(matrix, folder, command=load_command(folder))
    view.say(matrix.notes[-1])
    return matrix


def run_one_repeat(matrix: Matrix, folder: Path, number: int, view: ComparisonView, place: Path) -> bool:
    """Its trials, `number` counted from 0; outcomes go to `place`. Whether there were any left."""
    now = _start(matrix, folder)
    missing = find_missing(matrix, number, now.outcomes)
    for trial in missing:
        now = _run_one(now, trial, folder, view, place)
    if missing:
        view.say(f"repeat {number + 1} of {len(list_repeats(matrix))} is done: {describe_results(now)}")
    return bool(missing)


def find_missing(matrix: Matrix, number: int, outcomes: Sequence[Outcome]) -> list[Trial]:
    """Trials of a round that have no outcome."""
    ended = {_key(outcome) for outcome in outcomes if outcome.state != "unfinished"}
    return [trial for trial in list_repeats(matrix)[number] if _key(trial) not in ended]


def find_all_missing(matrix: Matrix, outcomes: Sequence[Outcome]) -> list[Trial]:
    """Of all rounds."""
    return [trial for number in range(len(list_repeats(matrix))) for trial in find_missing(matrix, number, outcomes)]


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
    return _look(Now(matrix, outcomes, sum(map(len, list_repeats(matrix)))), folder)


def _look(now: Now, folder: Path) -> Now:
    """With the step times of the tables: there is one definition of them."""
    return replace(now, standings=collect_comparison(folder).standings if now.outcomes else ())


def _run_one(now: Now, trial: Trial, folder: Path, view: ComparisonView, place: Path) -> Now:
    """One trial, with the table drawn meanwhile; where things stand after it."""
    started = time.monotonic()

    def tick(step: int) -> None:
        view.show(replace(now, trial=trial, step=step, running_seconds=time.monotonic() - started))

    outcome = _run_or_keep(now.matrix, trial, folder, tick, place)
    add_outcome(outcome, place)
    if place == folder:  # rounds that are jobs write at their end, one at a time
        write_so_far(folder)
    return _report(now, trial, outcome, folder, view)


def _report(now: Now, trial: Trial, outcome: Outcome, folder: Path, view: ComparisonView) -> Now:
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
        step = read_last_step(folder / TRIAL_RUNS / trial.folder)
        if step >= matrix.warm_up + LEAST_TIMED_STEPS:
            reason, seconds = f"stopped after {step} of {matrix.steps} steps", time.monotonic() - started
            add_outcome(Outcome(*_key(trial), "unfinished", reason, seconds, time.time(), name_node()), place)
        raise
