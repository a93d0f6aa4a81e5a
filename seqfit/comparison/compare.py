"""`seqfit.compare(recipe, strategies=...)`: a recipe comes in, a folder (records.py) and its `Comparison` go out.

All mistakes in recipe and options are found before the folder is made. Then, in this order: the data is tokenized; with
a budget, the first trial shows what fits (repeats.py); every candidate is planned for other GPUs; trials run, one at a
time and each in a fresh process; last, every candidate is planned for this machine. Results are written after every
trial, so that a comparison may be stopped at any time.

    resume   comparison.yaml states what is to be run, outcomes.jsonl what has been; the rest is run. A trial that was
             stopped has no outcome and starts over.

A folder is locked while a comparison runs in it, and a signal becomes `Stopped`, which ends the running trial. No torch
here.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from seqfit.comparison.live import ComparisonView, choose_comparison_view
from seqfit.comparison.matrix import build_matrix, describe_matrix, list_repeats
from seqfit.comparison.options import read_options
from seqfit.comparison.predicted import predict_candidates, tokenize_ahead
from seqfit.comparison.records import (
    MATRIX,
    PLACE,
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
from seqfit.hardware import probe_machine
from seqfit.launch import is_launched
from seqfit.processes import raise_on_signals
from seqfit.recipe import Recipe
from seqfit.rundir import RunWriter, explained_failures, files, mask_text, write_text
from seqfit.system import known_signals, lock_file, quote
from seqfit.training import select_handled
from seqfit.units import format_seconds

_SIGNALS = known_signals("SIGTERM", "SIGHUP", "SIGUSR1")  # the last: from Slurm, before a job's time limit


@contextmanager
def locked(folder: Path, *, waits: bool = False) -> Iterator[None]:
    """Two comparisons in one folder would run the same trials; `waits`: until the other one is done."""
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock_file(lock, waits=waits)
    except OSError as error:
        os.close(lock)
        taken = isinstance(error, BlockingIOError)
        given = f"another process runs the comparison in '{folder}'"
        raise RunError(
            given if taken else f"'{folder}' can't be locked ({error.strerror})",
            "a lock ensures that one process at a time runs a comparison",
            "Wait until it ends, or give another --out",
        ) from error
    try:
        yield
    finally:
        os.close(lock)


def stopped_by_signals(resume: str) -> AbstractContextManager[None]:
    """SIGTERM, a closed terminal and Slurm's SIGUSR1 end the running trial; `resume` is the command for later."""

    def build_error(number: signal.Signals) -> Stopped:
        rule = "a comparison that is stopped ends the running trial, and keeps finished ones"
        return Stopped(f"received {number.name}", rule, f"Resume with: {resume}")

    return raise_on_signals(select_handled(_SIGNALS), build_error)


@dataclass(frozen=True)
class PreparedComparison:
    matrix: Matrix
    folder: Path
    command: str

    def describe(self) -> str:
        return describe_matrix(self.matrix)


def compare(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    matrix: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    view: ComparisonView | None = None,
    **options: Any,
) -> Comparison:
    """Train one recipe with several strategies and compare them fairly.

    `options` are the fields of `ComparisonOptions`, such as strategies=["baseline", "recompute"], seeds=[0, 1],
    repeats=5, steps=40, gpus=["v100-16-sxm"], vary={"train.learning_rate": [1e-4, 3e-4]}, budget="20m". They take
    precedence over those of `matrix`, a file or a mapping. `out` is the folder (default: comparisons/NAME-TIME).
    `resume` continues a comparison that was stopped: the one in `out`, or in the folder given in place of the recipe.
    Progress is printed as by `seqfit compare`; with `progress=False` nothing is.
    """
    prepared = prepare_comparison(recipe, overrides, matrix=matrix, out=out, resume=resume, **options)
    return run_comparison(prepared, view or (None if progress else ComparisonView()))


def prepare_comparison(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    matrix: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **options: Any,
) -> PreparedComparison:
    """What `compare` would run, checked; nothing is written yet."""
    if is_launched():
        raise RecipeError(
            "seqfit compare runs inside torchrun, srun or accelerate",
            "it starts the processes of every trial itself",
            "Run it as a single process",
        )
    if resume and isinstance(recipe, str | Path) and (Path(recipe) / MATRIX).is_file():
        budget = options.pop("budget", None)
        others = [name for name in options if options[name]]
        given = [*overrides, *(["a matrix"] if matrix is not None else []), *others]
        if given:
            raise RecipeError(
                f"the folder of a comparison is given to resume, and also {', '.join(map(str, given))}",
                "all trials of a comparison share one matrix, which is in the folder",
                "Give only the folder and --resume (and --budget), or start a new comparison",
            )
        _check_here(Path(recipe))
        return PreparedComparison(_extend(Path(recipe), budget), Path(recipe), load_command(Path(recipe)))
    built = build_matrix(recipe, overrides, read_options(matrix, options), probe_machine())
    if resume:
        folder = _find_earlier(built.name) if out is None else Path(out)
        _check_here(folder)
        _check_unchanged(folder, built)
        return PreparedComparison(load_matrix(folder), folder, load_command(folder))
    folder = choose_folder(built.name, out)
    RunWriter.check_free(folder)
    return PreparedComparison(built, folder, format_command("compare"))


def _extend(folder: Path, budget: str | float | None) -> Matrix:
    matrix = load_matrix(folder)
    more = read_options(None, {"budget": budget}).budget_seconds
    if more is None:
        return matrix
    outcomes = read_outcomes(folder)
    extended = replace(matrix, budget_seconds=sum(one.seconds for one in outcomes) + more, ended="")
    if outcomes and not is_decided(extended):  # it had no budget so far
        note = f"--budget {format_seconds(more)}: missing trials have {matrix.steps} steps, as finished ones"
        extended = replace(extended, notes=(*matrix.notes, note), is_decided=True)
    dump_matrix(extended, folder, command=load_command(folder))
    return extended


def choose_folder(name: str, out: str | Path | None) -> Path:
    return PLACE / f"{name}-{datetime.now():%Y%m%d-%H%M%S}" if out is None else Path(out)


def format_command(name: str) -> str:
    """This process's command line; '' if it was called from Python."""
    return mask_text(shlex.join(["seqfit", *sys.argv[1:]])) if name in sys.argv[1:3] else ""


def run_comparison(prepared: PreparedComparison, view: ComparisonView | None = None) -> Comparison:
    """To its end, or to that of the budget; finished trials are not run again.

    If it is stopped, the folder has the results so far. Progress is printed unless another `view` is given.
    """
    folder, matrix, outcomes = prepared.folder, prepared.matrix, read_outcomes(prepared.folder)
    wanted = len(matrix.candidates) * (1 + len(matrix.targets))
    # A cluster's missing predictions are not made on this other machine.
    is_predicted = matrix.repeats_are_jobs or len(load_predictions(folder)) == wanted
    if matrix.ended or (is_predicted and not find_all_missing(matrix, outcomes)):
        return write_so_far(folder)
    clock = Clock(matrix.budget_seconds, sum(outcome.seconds for outcome in outcomes), time.monotonic())
    resume = f"seqfit compare {quote(folder)} --resume"
    with view or choose_comparison_view() as shown, stopped_by_signals(resume):
        try:
            with ended_by(clock):
                _run_all(prepared, clock, shown)
        except OutOfTime:
            _end(prepared, "is used up", shown)
        except (KeyboardInterrupt, Stopped):
            _open_folder(prepared)
            write_so_far(folder)
            shown.log(f"stopped; resume with: {resume}")
            raise
        return write_so_far(folder)


def _run_all(prepared: PreparedComparison, clock: Clock, view: ComparisonView) -> None:
    tokenize_ahead(prepared.matrix, view.log)
    folder, matrix = prepared.folder, _open_folder(prepared)
    with locked(folder):
        if not is_decided(matrix) and any(list_repeats(matrix)):
            matrix = run_first_trial(matrix, folder, view, clock)
        _predict(matrix, folder, view, until=time.monotonic() + clock.prediction_seconds, is_here=False)
        for number in range(len(list_repeats(matrix))):
            missing = find_missing(matrix, number, read_outcomes(folder))
            if number and missing and not has_time(missing, read_outcomes(folder), clock):
                left = format_seconds(max(0.0, clock.left_seconds))
                _end(prepared, f"leaves no time for another repeat ({left} left)", view)
                break
            run_one_repeat(matrix, folder, number, view, folder)
        _predict(matrix, folder, view, until=math.inf, is_here=None)


def _predict(matrix: Matrix, folder: Path, view: ComparisonView, *, until: float, is_here: bool | None) -> None:
    """What is missing, written one by one; `until`: on the monotonic clock."""
    done = load_predictions(folder)
    for prediction in predict_candidates(matrix, done, view.log, is_here=is_here):
        done.append(prediction)
        dump_predictions(done, folder)
        if time.monotonic() > until:
            break


def _end(prepared: PreparedComparison, why: str, view: ComparisonView) -> None:
    """Records that nothing more will be run, whatever is missing."""
    matrix, folder = _open_folder(prepared), prepared.folder
    ended = f"the budget of {format_seconds(matrix.budget_seconds or 0)} {why}"
    dump_matrix(replace(matrix, ended=ended), folder, command=prepared.command)
    view.log(f"{ended}; to continue: seqfit compare {quote(folder)} --resume --budget TIME")


def _open_folder(prepared: PreparedComparison) -> Matrix:
    """Makes the folder if it is new; returns its matrix."""
    folder = prepared.folder
    if (folder / MATRIX).is_file():
        return load_matrix(folder)
    with explained_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / files.RECIPE, prepared.matrix.recipe)
    dump_matrix(prepared.matrix, folder, command=prepared.command)
    return prepared.matrix


def _check_here(folder: Path) -> None:
    """Repeats that were submitted to Slurm run there; once all have ended, their results can be shown here."""
    matrix, outcomes, place = load_matrix(folder), read_outcomes(folder), quote(folder)
    if matrix.repeats_are_jobs and find_all_missing(matrix, outcomes):
        raise RunError(
            f"'{folder}' was submitted to Slurm, and some of its trials have not ended",
            "its repeats run on the cluster",
            f"Look at them (seqfit status {place}), or submit what is left: seqfit submit {place}",
        )


def _find_earlier(name: str) -> Path:
    found = sorted(PLACE.glob(f"{name}-*/{MATRIX}"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise RunError(
            f"--resume is given, and '{PLACE}' has no comparison of '{name}'",
            "a comparison resumes in its own folder",
            "Name its folder in place of the recipe, or leave --resume out",
        )
    return found[-1].parent


def _check_unchanged(folder: Path, built: Matrix) -> None:
    """The options are those of the folder, apart from steps and repeats that a budget has reduced."""
    same = replace(load_matrix(folder), notes=built.notes, is_decided=built.is_decided)
    if same.budget_seconds is not None:
        same = replace(same, steps=built.steps, scored_rows=None, ended="", budget_seconds=built.budget_seconds)
    if same == built:
        return
    then, today = asdict(same), asdict(built)
    changed = [name for name in then if then[name] != today[name]]
    raise RunError(
        f"'{folder}' has a comparison of another matrix: {', '.join(changed)} differ",
        "all trials of a comparison share one matrix",
        f"Resume it as it is: seqfit compare {quote(folder)} --resume; or give another --out",
    )
