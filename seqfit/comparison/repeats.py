"""The trials of a comparison, run one at a time, repeat by repeat; and what fits into a time budget.

In: a matrix, its folder, a view. Out: outcomes in the folder, and results after every trial. A trial that has an
outcome is not run again, unless it was stopped before its end.

    seqfit compare RECIPE               all repeats; outcomes.jsonl
    seqfit compare FOLDER --repeat 3    one, as a task of a job array; repeats/3/outcomes.jsonl, because others run, too

`--budget 20m`: the first trial is a dry run, with few steps where a trial's share of the budget is short, else with
all. As soon as two of its steps are timed, or after a tenth of the budget (at least 20 s), the steps and scored rows of
all trials are fixed. Where these are what the first trial began with, it continues and is the first repeat; else it
starts over. An example without scored rows:

    5 s before the first timed step, 1 s per step, 12 timed steps and 5 repeats wanted, 4 candidates, 280 s left:
    0.9 x 280 / (4 x 1.2) = 52 s per candidate, where 0.9 and 1.2 are margins for what is not known yet

    timed steps   first repeat, with peak memory   others    repeats that fit
    12            5 + 12 + 6 = 23 s                17 s      2
    6             5 + 6 + 6 = 17 s                 11 s      4       three are enough: 6 timed steps

Steps are halved and rows are a power of two, so that a comparison that was killed before this point decides the same
again. After that the clock decides: a repeat that no longer fits is not started, and at the end of the budget the
running trial is stopped. Nothing is refused, and what is missing is listed (recommendation.py).
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

from seqfit.comparison.live import ComparisonProgress, ComparisonView, describe_results, describe_trials
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
from seqfit.processes import raise_on_signals
from seqfit.rundir import RecordFile, files
from seqfit.units import format_seconds

_DECIDE_SHARE, _DECIDE_SECONDS = 0.1, 20.0  # of the budget, whichever is longer: then steps and rows are fixed
_CLOSING_SHARE, _CLOSING_SECONDS = 0.03, 3.0  # for tables and page, whichever is longer
_USABLE = 0.9  # of what is left: trials differ
_SLOWER = 1.2  # than the timed candidate: a guess for the others
_WANTED_REPEATS = 3  # before more steps: two give a wide confidence interval
_SCORING_SHARE = 0.25  # of what is left, at most
_LEAST_ROWS, _FEW_ROWS, _MOST_ROWS = 32, 128, 512
_TOO_MANY = 4  # times the rows that fit: then the first trial starts over
_FEW_STEPS = 3  # timed, where more don't fit
_SHORT_SECONDS = 30.0  # of a trial: about ten are its start
_ROW_SHARE = {True: 0.3, False: 3.0}  # of a row's training time: a classifier's forward pass; generated text
_WATCHED_STEPS = 6  # the time that a first repeat needs at its end: up to three of the largest steps again
_PREDICTION_SECONDS = 3.0  # each; measured: 2 s for an encoder with 22M parameters
_PREDICTION_SHARE = 0.15  # of the budget, at most


class OutOfTime(Exception):
    """The budget is used up."""


@dataclass(frozen=True)
class Clock:
    """What is left of a budget; None is no limit."""

    budget_seconds: float | None
    used_seconds: float = 0.0  # by trials before a resume
    began: float = 0.0  # on the monotonic clock

    @property
    def left_seconds(self) -> float:
        """For trials; tables and page come after them."""
        if self.budget_seconds is None:
            return math.inf
        closing = max(_CLOSING_SECONDS, _CLOSING_SHARE * self.budget_seconds)
        return self.budget_seconds - closing - self.used_seconds - (time.monotonic() - self.began)

    @property
    def must_decide(self) -> bool:
        if self.budget_seconds is None:
            return False
        return time.monotonic() - self.began >= max(_DECIDE_SECONDS, _DECIDE_SHARE * self.budget_seconds)

    @property
    def prediction_seconds(self) -> float:
        return math.inf if self.budget_seconds is None else _PREDICTION_SHARE * self.budget_seconds


@contextmanager
def ended_by(clock: Clock) -> Iterator[None]:
    """Raises `OutOfTime` in the block when the budget ends; outside the main thread the budget ends between trials."""
    is_main = threading.current_thread() is threading.main_thread()
    if math.isinf(clock.left_seconds) or not is_main or not hasattr(signal, "setitimer"):
        yield
        return
    with raise_on_signals([signal.SIGALRM], lambda _: OutOfTime()):
        signal.setitimer(signal.ITIMER_REAL, max(clock.left_seconds, 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass(frozen=True)
class Pace:
    before_seconds: float  # before the first timed step: start and warm-up
    step_seconds: float
    examples: float  # per step


def is_decided(matrix: Matrix) -> bool:
    """Whether there is no budget, or steps and rows have been fitted to it."""
    return matrix.budget_seconds is None or matrix.is_decided


def read_pace(run: Path, warm_up: int, started: float) -> Pace | None:
    """Of a trial since `started` (Unix time); of its warm-up if there are no other steps, None without any."""
    steps = RecordFile(run / files.STEPS).read()
    timed = [record for record in steps if record["step"] > warm_up] or steps
    if not timed:
        return None
    first = timed[0]
    before = max(0.0, first["time"] - first["step_seconds"] - started)
    return Pace(before, median(one["step_seconds"] for one in timed), mean(one["examples"] for one in timed))


def begin(matrix: Matrix) -> Matrix:
    """With steps and rows of the first trial: few, if no more can fit in any case."""
    share = _USABLE * (matrix.budget_seconds or 0.0) / (_count_trials(matrix) * _WANTED_REPEATS)
    if share < _SHORT_SECONDS:
        return replace(matrix, steps=min(_list_steps(matrix)), scored_rows=_limit_rows(matrix, _FEW_ROWS))
    return replace(matrix, scored_rows=_limit_rows(matrix, _MOST_ROWS))


def decide(matrix: Matrix, begun: Matrix, pace: Pace | None, left_seconds: float) -> Matrix:
    """The matrix with the steps and scored rows that fit, and a note about them.

    `begun`: with those of the first trial, which continues if possible; `pace`: of that trial.
    """
    candidates = sum(not candidate.unavailable for candidate in matrix.candidates)
    if pace is None:
        given = f"no step has been timed yet; what fits: {candidates} candidates, as many repeats as possible,"
        fewest = replace(matrix, steps=min(_list_steps(matrix)), scored_rows=_limit_rows(matrix, _FEW_ROWS))
        return _note(fewest, given, matrix.steps)
    predicted = len(matrix.candidates) * len(matrix.targets) * _PREDICTION_SECONDS
    usable = _USABLE * left_seconds - min(predicted, _PREDICTION_SHARE * (matrix.budget_seconds or 0.0))
    share = usable / _count_trials(matrix)
    is_classifier = build_recipe(matrix, matrix.baseline, matrix.seeds[0]).model.kind == "classifier"
    row_seconds = _ROW_SHARE[is_classifier] * pace.step_seconds / pace.examples
    rows = 2 ** math.floor(math.log2(min(max(_LEAST_ROWS, _SCORING_SHARE * share / row_seconds), _MOST_ROWS)))
    wanted = matrix.repeats * len(matrix.seeds)
    for steps in _list_steps(matrix):
        trial = pace.before_seconds + (steps - matrix.warm_up) * pace.step_seconds
        is_begun = steps == begun.steps and _count_scored(begun) <= _TOO_MANY * rows
        limit = begun.scored_rows if is_begun else _limit_rows(matrix, rows)
        scored = trial + _WATCHED_STEPS * pace.step_seconds + min(_count_scored(begun), rows) * row_seconds
        repeats = _count_repeats(share, [scored] * len(matrix.seeds), trial, wanted)
        if repeats >= min(_WANTED_REPEATS, wanted):
            break
    before, step = format_seconds(pace.before_seconds), format_seconds(pace.step_seconds)
    fits = f"{repeats} of {wanted} repeats" if repeats else "less than one repeat"
    took = f"the first trial takes {before} before its first timed step and {step} per step"
    given = f"{took}; what fits: {candidates} candidates, {fits},"
    return _note(replace(matrix, steps=steps, scored_rows=limit), given, matrix.steps)


def has_time(trials: Sequence[Trial], outcomes: Sequence[Outcome], clock: Clock) -> bool:
    """Whether these fit, by the last trial of each candidate."""
    last = {outcome.candidate: outcome.seconds for outcome in outcomes}
    return sum(last.get(trial.candidate, 0.0) for trial in trials) <= clock.left_seconds


def _note(matrix: Matrix, given: str, wanted_steps: int) -> Matrix:
    of = "" if wanted_steps == matrix.steps else f" of {wanted_steps}"
    rows = "" if matrix.scored_rows is None else f", scored on at most {matrix.scored_rows} rows"
    note = f"--budget {format_seconds(matrix.budget_seconds or 0)}: {given} {matrix.steps}{of} steps each{rows}"
    return replace(matrix, notes=(*matrix.notes, note), is_decided=True)


def _list_steps(matrix: Matrix) -> list[int]:
    """15 with 3 of warm-up: 15, 9, 6."""
    timed = [matrix.steps - matrix.warm_up]
    while timed[-1] >= 2 * _FEW_STEPS:
        timed.append(timed[-1] // 2)
    return [matrix.warm_up + number for number in timed]


def _limit_rows(matrix: Matrix, rows: int) -> int | None:
    """None if the recipe scores no more than `rows`."""
    return None if _count_scored(replace(matrix, scored_rows=None)) <= rows else rows


def _count_scored(matrix: Matrix) -> float:
    return build_recipe(matrix, matrix.baseline, matrix.seeds[0]).eval.limit or math.inf


def _count_trials(matrix: Matrix) -> float:
    """Trials of a repeat, counted in trials of the timed candidate."""
    return sum(not candidate.unavailable for candidate in matrix.candidates) * _SLOWER


def _count_repeats(usable_seconds: float, scored: Sequence[float], repeat_seconds: float, wanted: int) -> int:
    """Repeats that fit: the first of every seed is scored, the others are not."""
    repeats = 0
    for seconds in (*scored, *[repeat_seconds] * (wanted - len(scored))):
        usable_seconds -= seconds
        if usable_seconds < 0:
            break
        repeats += 1
    return repeats


class _Decided(Exception):
    """The running trial has more steps or rows than fit."""


def run_first_trial(matrix: Matrix, folder: Path, view: ComparisonView, clock: Clock) -> Matrix:
    """The dry run of a budget: the first trial, until steps and rows of all trials are fixed and written.

    If they are its own, it runs to its end and counts. If it fails, the next trial takes its place.
    """
    now, begun, decided = _start(matrix, folder), begin(matrix), matrix
    run, started = folder, 0.0

    def decide_now() -> None:
        nonlocal decided
        decided = decide(matrix, begun, read_pace(run, matrix.warm_up, started), clock.left_seconds)
        dump_matrix(decided, folder, command=load_command(folder))
        view.log(decided.notes[-1])

    def tick(step: int) -> None:
        view.show(replace(now, matrix=begun, trial=trial, step=step, running_seconds=time.time() - started))
        if not is_decided(decided) and (step >= matrix.warm_up + LEAST_TIMED_STEPS or clock.must_decide):
            decide_now()
            if not _has_same_work(decided, begun):
                raise _Decided

    for trial in find_missing(matrix, 0, now.outcomes):
        if clock.must_decide:
            break
        run, started = folder / TRIAL_RUNS / trial.folder, time.time()
        view.log(f"dry run: {trial.candidate}, to see what fits into the budget")
        try:
            outcome = _run_or_keep(begun, trial, folder, tick, folder)
        except _Decided:
            return decided
        if outcome.state == "finished" and not is_decided(decided):
            decide_now()
        if outcome.state != "finished" or _has_same_work(decided, begun):
            add_outcome(outcome, folder)
            now = _report(replace(now, matrix=decided), outcome, folder, view)
        if is_decided(decided):
            return decided
    decide_now()
    return decided


def _has_same_work(one: Matrix, other: Matrix) -> bool:
    return (one.steps, one.scored_rows) == (other.steps, other.scored_rows)


def run_one_repeat(matrix: Matrix, folder: Path, number: int, view: ComparisonView, place: Path) -> bool:
    """Its missing trials, `number` counted from 0; outcomes go to `place`. Whether there were any."""
    now = _start(matrix, folder)
    missing = find_missing(matrix, number, now.outcomes)
    for trial in missing:
        now = _run_one(now, trial, folder, view, place)
    if missing:
        view.log(f"{number + 1} of {len(list_repeats(matrix))} repeats finished; {describe_results(now)}")
    return bool(missing)


def find_missing(matrix: Matrix, number: int, outcomes: Sequence[Outcome]) -> list[Trial]:
    ended = {outcome.trial for outcome in outcomes if outcome.state != "unfinished"}
    return [trial for trial in list_repeats(matrix)[number] if trial not in ended]


def find_all_missing(matrix: Matrix, outcomes: Sequence[Outcome]) -> list[Trial]:
    return [trial for number in range(len(list_repeats(matrix))) for trial in find_missing(matrix, number, outcomes)]


def write_so_far(folder: Path) -> Comparison:
    comparison = collect_comparison(folder)
    write_results(comparison)
    return comparison


def _start(matrix: Matrix, folder: Path) -> ComparisonProgress:
    outcomes = [outcome for outcome in read_outcomes(folder) if outcome.state != "unfinished"]
    return _add_results(ComparisonProgress(matrix, outcomes, sum(map(len, list_repeats(matrix)))), folder)


def _add_results(now: ComparisonProgress, folder: Path) -> ComparisonProgress:
    return replace(now, results=collect_comparison(folder).results if now.outcomes else ())


def _run_one(
    now: ComparisonProgress, trial: Trial, folder: Path, view: ComparisonView, place: Path
) -> ComparisonProgress:
    started = time.monotonic()

    def tick(step: int) -> None:
        view.show(replace(now, trial=trial, step=step, running_seconds=time.monotonic() - started))

    outcome = _run_or_keep(now.matrix, trial, folder, tick, place)
    add_outcome(outcome, place)
    if place == folder:  # repeats that are jobs write results at their end, one at a time
        write_so_far(folder)
    return _report(now, outcome, folder, view)


def _report(now: ComparisonProgress, outcome: Outcome, folder: Path, view: ComparisonView) -> ComparisonProgress:
    now = _add_results(replace(now, outcomes=[*now.outcomes, outcome]), folder)
    how = outcome.state.replace("_", " ") + (f" ({outcome.reason})" if outcome.reason else "")
    view.log(f"{outcome.trial}: {how} in {format_seconds(outcome.seconds)}; {describe_trials(now)}")
    return now


def _run_or_keep(matrix: Matrix, trial: Trial, folder: Path, tick: Tick, place: Path) -> Outcome:
    """How it ended; if it is stopped, the times of its steps after warm-up are kept."""
    started = time.monotonic()
    try:
        return run_trial(matrix, trial, folder, tick)
    except (KeyboardInterrupt, Stopped, OutOfTime):
        step = read_last_step(folder / TRIAL_RUNS / trial.folder)
        if step >= matrix.warm_up + LEAST_TIMED_STEPS:
            reason, seconds = f"stopped after {step} of {matrix.steps} steps", time.monotonic() - started
            who = (trial.candidate, trial.seed, trial.repeat)
            add_outcome(Outcome(*who, "unfinished", reason, seconds, time.time(), name_node()), place)
        raise
