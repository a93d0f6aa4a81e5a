"""`seqfit.compare(recipe, strategies=...)`: a recipe comes in, a folder goes out (records.py), and what it says.

Everything that can be wrong with what was asked for is found before the folder is made. Then, in this order: data are
tokenised; the first trial shows what a budget affords (budget.py); every candidate is planned for other GPUs; trials
run, one at a time and each in a fresh process; at last every candidate is planned for this machine. Results are written
after every trial, so whoever stops a comparison keeps what is done.

    resume   comparison.yaml says what is to be run, outcomes.jsonl what has been: the rest is run. A trial that was
             stopped half way has no outcome and begins anew.

One tournament at a time in a folder, and an orderly end of it: locks and signals. No torch here.

In: a folder. Out: nothing; the `with` block runs alone, and a signal becomes `Stopped` at a place that can clean up.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from seqfit.comparison.live import ComparisonView, SilentComparisonView, choose_comparison_view
from seqfit.comparison.matrix import build_matrix, list_repeats
from seqfit.comparison.options import read_options
from seqfit.comparison.predicted import predict_candidates, tokenize_ahead
from seqfit.comparison.records import (
    MATRIX,
    Comparison,
    Matrix,
    dump_matrix,
    dump_predictions,
    load_command,
    load_matrix,
    load_predictions,
    read_outcomes,
)
from seqfit.comparison.repeats import (
    Clock,
    OutOfTime,
    ended_by,
    find_all_missing,
    find_missing,
    has_time,
    is_decided,
    run_first_trial,
    run_one_repeat,
    write_so_far,
)
from seqfit.errors import RecipeError, RunError, Stopped
from seqfit.hardware.probe import probe_machine
from seqfit.launch.local import is_launched
from seqfit.recipe.resolve import RUN_RECIPE
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.atomic import explained_failures, write_text
from seqfit.rundir.masking import mask_text
from seqfit.rundir.writer import RunWriter
from seqfit.system import known_signals, lock_file, quote
from seqfit.training.stopping import select_handled
from seqfit.units import format_seconds

_SIGNALS = known_signals("SIGTERM", "SIGHUP", "SIGUSR1")  # the last: Slurm's, before the time of a job is over


@contextmanager
def locked(folder: Path, *, waits: bool = False) -> Iterator[None]:
    """Two tournaments in one folder would run the same trials; `waits`: for who is through in a moment."""
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(lock, waits=waits)
    except OSError as error:
        os.close(lock)
        taken = isinstance(error, BlockingIOError)
        given = f"another process runs the tournament in '{folder}'"
        raise RunError(
            given if taken else f"'{folder}' can't be locked ({error.strerror})",
            "one at a time does, which a lock sees to",
            "Wait until it ends, or give another --out",
        ) from error
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def stopped_orderly(how_to_go_on: str) -> Iterator[None]:
    """SIGTERM and a closed terminal end the trial that runs; in other threads than the main one they can't."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(
            f"{signal.Signals(number).name} came",
            "a tournament that is asked to stop ends the trial that runs, and keeps those that are done",
            f"Go on with: {how_to_go_on}",
        )

    before = {number: signal.signal(number, stop) for number in select_handled(_SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


PLACE = Path("comparisons")


@dataclass(frozen=True)
class PreparedComparison:
    """What is to be run, and where."""

    matrix: Matrix
    folder: Path
    command: str


def compare(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    matrix: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    view: ComparisonView | None = None,
    **asked: Any,
) -> Comparison:
    """Run ways to train one recipe against each other, fairly.

    `asked`: the fields of a matrix (asked.py), such as strategies=["baseline", "recompute"], seeds=[0, 1], repeats=5,
    steps=40, gpus=["v100-16-sxm"], vary={"train.learning_rate": [1e-4, 3e-4]}, budget="20m". They win over those of the
    file or mapping `matrix`. `out` is the folder, by default comparisons/NAME-TIME. With `resume` a tournament that was
    stopped goes on: the one in `out`, or in the folder that stands in the place of the recipe. It prints what
    `seqfit compare` prints while it goes on; with `progress=False` nothing.
    """
    tournament = prepare_comparison(recipe, overrides, matrix=matrix, out=out, resume=resume, **asked)
    return run_comparison(tournament, view or (choose_comparison_view() if progress else SilentComparisonView()))


def prepare_comparison(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    matrix: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **asked: Any,
) -> PreparedComparison:
    """What `compare` would run, checked; nothing is written yet."""
    _check_not_launched()
    if resume and isinstance(recipe, str | Path) and (Path(recipe) / MATRIX).is_file():
        budget = asked.pop("budget", None)
        _check_nothing_else(overrides, matrix, asked)
        _check_here(Path(recipe))
        return PreparedComparison(_extend(Path(recipe), budget), Path(recipe), load_command(Path(recipe)))
    built = build_matrix(recipe, overrides, read_options(matrix, asked), probe_machine())
    if resume:
        folder = _find_earlier(built.name) if out is None else Path(out)
        _check_here(folder)
        _check_unchanged(folder, built)
        return PreparedComparison(load_matrix(folder), folder, load_command(folder))
    folder = choose_folder(built.name, out)
    RunWriter.check_free(folder)
    return PreparedComparison(built, folder, say_command("compare"))


def _extend(folder: Path, budget: str | float | None) -> Matrix:
    """The matrix of a folder, with so much more time where it is given."""
    matrix = load_matrix(folder)
    more = read_options(None, {"budget": budget}).budget_seconds
    if more is None:
        return matrix
    outcomes = read_outcomes(folder)
    extended = replace(matrix, budget_seconds=sum(one.seconds for one in outcomes) + more, ended="")
    if outcomes and not is_decided(extended):  # it had no budget so far
        note = f"--budget {format_seconds(more)}: what is missing has {matrix.steps} steps, as what is done"
        extended = replace(extended, notes=(*matrix.notes, note), is_decided=True)
    dump_matrix(extended, folder, command=load_command(folder))
    return extended


def choose_folder(name: str, out: str | Path | None) -> Path:
    """Where a new comparison goes."""
    return PLACE / f"{name}-{datetime.now():%Y%m%d-%H%M%S}" if out is None else Path(out)


def say_command(name: str) -> str:
    """What this process was called with; '' where it was called from Python, and no line says it again."""
    return mask_text(shlex.join(["seqfit", *sys.argv[1:]])) if name in sys.argv[1:3] else ""


def run_comparison(tournament: PreparedComparison, view: ComparisonView | None = None) -> Comparison:
    """To the end, or to that of the budget; what is done already is not done again.

    Whoever stops it finds the results of what is done in the folder.
    """
    folder = tournament.folder
    if _has_ended(tournament):
        return write_so_far(folder)
    used = sum(outcome.seconds for outcome in read_outcomes(folder))
    clock = Clock(tournament.matrix.budget_seconds, used, time.monotonic())
    again = f"seqfit compare {quote(folder)} --resume"
    with view or SilentComparisonView() as shown, stopped_orderly(again):
        try:
            with ended_by(clock):
                _run_all(tournament, clock, shown)
        except OutOfTime:
            _end(tournament, "has ended", shown)
        except (KeyboardInterrupt, Stopped):
            _open_folder(tournament)
            write_so_far(folder)
            shown.say(f"stopped; go on with: {again}")
            raise
        return write_so_far(folder)


def _run_all(tournament: PreparedComparison, clock: Clock, view: ComparisonView) -> None:
    """The dry run of a budget, predictions for other GPUs, the trials, and last predictions for this machine."""
    tokenize_ahead(tournament.matrix, view.say)
    folder, matrix = tournament.folder, _open_folder(tournament)
    with locked(folder):
        if not is_decided(matrix) and any(list_repeats(matrix)):
            matrix = run_first_trial(matrix, folder, view, clock)
        _predict(matrix, folder, view, until=time.monotonic() + clock.prediction_seconds, is_here=False)
        for number in range(len(list_repeats(matrix))):
            missing = find_missing(matrix, number, read_outcomes(folder))
            if number and missing and not has_time(missing, read_outcomes(folder), clock):
                left = format_seconds(max(0.0, clock.left_seconds))
                _end(tournament, f"has no time for another repeat ({left} left)", view)
                break
            run_one_repeat(matrix, folder, number, view, folder)
        _predict(matrix, folder, view, until=math.inf, is_here=None)


def _predict(matrix: Matrix, folder: Path, view: ComparisonView, *, until: float, is_here: bool | None) -> None:
    """What is not predicted yet, written one by one; `until`: on the monotonic clock."""
    done = load_predictions(folder)
    for prediction in predict_candidates(matrix, done, view.say, is_here=is_here):
        done.append(prediction)
        dump_predictions(done, folder)
        if time.monotonic() > until:
            break


def _end(tournament: PreparedComparison, why: str, view: ComparisonView) -> None:
    """Written down: nothing more is run, whatever is missing."""
    matrix, folder = _open_folder(tournament), tournament.folder
    ended = f"the budget of {format_seconds(matrix.budget_seconds or 0)} {why}"
    more = f"seqfit compare {quote(folder)} --resume --budget TIME"
    dump_matrix(replace(matrix, ended=ended), folder, command=tournament.command)
    view.say(f"{ended}; for more: {more}")


def _has_ended(tournament: PreparedComparison) -> bool:
    """Whether nothing is left to do. What a cluster has not predicted is not predicted here, on another machine."""
    matrix, folder = tournament.matrix, tournament.folder
    wanted = len(matrix.entrants) * (1 + len(matrix.targets))
    is_predicted = matrix.is_apart or len(load_predictions(folder)) == wanted
    return bool(matrix.ended) or (is_predicted and not find_all_missing(matrix, read_outcomes(folder)))


def _open_folder(tournament: PreparedComparison) -> Matrix:
    """The matrix that the folder has, made if it is new."""
    folder = tournament.folder
    if (folder / MATRIX).is_file():
        return load_matrix(folder)
    with explained_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RUN_RECIPE, tournament.matrix.recipe)
    dump_matrix(tournament.matrix, folder, command=tournament.command)
    return tournament.matrix


def _check_not_launched() -> None:
    if is_launched():
        raise RecipeError(
            "seqfit compare is called inside torchrun, srun or accelerate",
            "it starts the processes of every trial itself",
            "Call it as one process",
        )


def _check_here(folder: Path) -> None:
    """Rounds that were given to Slurm run there; when all have ended, their results can be shown here."""
    matrix, outcomes, place = load_matrix(folder), read_outcomes(folder), quote(folder)
    if matrix.is_apart and find_all_missing(matrix, outcomes):
        raise RunError(
            f"'{folder}' was given to Slurm, and some of its trials have not ended",
            "its rounds run on the cluster",
            f"See how they are (seqfit status {place}), or submit what is left: seqfit submit {place}",
        )


def _check_nothing_else(overrides: Sequence[str], matrix: object, asked: Mapping[str, Any]) -> None:
    given = [*overrides, *(["a matrix"] if matrix is not None else []), *(name for name in asked if asked[name])]
    if given:
        raise RecipeError(
            f"a comparison's folder is given to go on with, and {', '.join(map(str, given))}",
            "all trials of a comparison are of one matrix, which is in the folder",
            "Leave the folder alone and start a new comparison, or give the folder and --resume only",
        )


def _find_earlier(name: str) -> Path:
    """The newest comparison of that name."""
    found = sorted(PLACE.glob(f"{name}-*/{MATRIX}"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise RunError(
            f"--resume is given, and '{PLACE}' has no comparison of '{name}'",
            "one that was stopped has a folder to go on in",
            "Name its folder in the place of the recipe, or leave --resume out",
        )
    return found[-1].parent


def _check_unchanged(folder: Path, built: Matrix) -> None:
    """What was asked for now is what the folder has; steps and rounds that a budget has cut don't count."""
    same = replace(load_matrix(folder), notes=built.notes, is_decided=built.is_decided)
    if same.budget_seconds is not None:
        same = replace(same, steps=built.steps, scored_rows=None, ended="", budget_seconds=built.budget_seconds)
    if same == built:
        return
    then, today = asdict(same), asdict(built)
    changed = [name for name in then if then[name] != today[name]]
    raise RunError(
        f"'{folder}' holds a comparison of another matrix: {', '.join(changed)}",
        "all trials of a comparison are of one matrix",
        f"Go on with it as it is: seqfit compare {quote(folder)} --resume; or give another --out",
    )
