"""`seqfit.compare(recipe, strategies=...)`: a recipe comes in, a folder goes out (records.py), and what it says.

Everything that can be wrong with what was asked for is found before the folder is made. Then, in this order: data are
tokenised and every entrant is planned; with a budget a rehearsal decides the steps; the trials run, one at a time and
each in a fresh process. Results are written anew after every round, so whoever stops a tournament keeps what is done.

    resume   comparison.yaml says what is to be run, outcomes.jsonl what has been: the rest is run. A trial that was
             stopped half way has no outcome and begins anew.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from seqfit.compare.asked import read_asked
from seqfit.compare.budget import cut_steps, is_decided, rehearse
from seqfit.compare.folder import add_outcome, dump_matrix, dump_predictions, load_command, load_matrix, read_outcomes
from seqfit.compare.live import Now, Silent, View, say_standings, say_where
from seqfit.compare.matrix import build_matrix, list_rounds
from seqfit.compare.predicted import predict_entrants, tokenize_ahead
from seqfit.compare.records import MATRIX, PREDICTIONS, RUNS, Comparison, Matrix, Outcome, Trial
from seqfit.compare.results import collect_comparison, write_results
from seqfit.compare.trial import read_step_seconds, run_trial
from seqfit.errors import RecipeError, RunError, Stopped, complain
from seqfit.hardware.probe import probe_machine
from seqfit.launch.local import is_launched
from seqfit.recipe.load import RUN_RECIPE
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.masking import mask_text
from seqfit.rundir.writer import RunWriter, told_failures, write_whole
from seqfit.units import format_seconds

PLACE = Path("comparisons")


@dataclass(frozen=True)
class Tournament:
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
    view: View | None = None,
    **asked: Any,
) -> Comparison:
    """Run ways to train one recipe against each other, fairly.

    `asked`: the fields of a matrix (asked.py), such as strategies=["vanilla", "recompute"], seeds=[0, 1], repeats=5,
    steps=40, gpus=["v100-16-sxm"], vary={"train.learning_rate": [1e-4, 3e-4]}, budget="20m". They win over those of the
    file or mapping `matrix`. `out` is the folder, by default comparisons/NAME-TIME. With `resume` a tournament that was
    stopped goes on: the one in `out`, or in the folder that stands in the place of the recipe.
    """
    tournament = prepare_tournament(recipe, overrides, matrix=matrix, out=out, resume=resume, **asked)
    return run_tournament(tournament, view)


def prepare_tournament(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    matrix: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **asked: Any,
) -> Tournament:
    """What `compare` would run, checked; nothing is written yet."""
    _check_not_launched()
    is_command = "compare" in sys.argv[1:3]  # else it was called from Python, and no line says it again
    words = mask_text(shlex.join(["seqfit", *sys.argv[1:]])) if is_command else ""
    if resume and isinstance(recipe, str | Path) and (Path(recipe) / MATRIX).is_file():
        _check_nothing_else(overrides, matrix, asked)
        return Tournament(load_matrix(Path(recipe)), Path(recipe), load_command(Path(recipe)))
    built = build_matrix(recipe, overrides, read_asked(matrix, asked), probe_machine())
    if resume:
        folder = _find_earlier(built.name) if out is None else Path(out)
        _check_unchanged(folder, built)
        return Tournament(load_matrix(folder), folder, load_command(folder))
    folder = PLACE / f"{built.name}-{datetime.now():%Y%m%d-%H%M%S}" if out is None else Path(out)
    RunWriter.check_free(folder)
    return Tournament(built, folder, words)


def run_tournament(tournament: Tournament, view: View | None = None) -> Comparison:
    """To the end; what is done already is not done again."""
    began = time.monotonic()
    with view or Silent() as shown, _stopped_orderly(tournament.folder):
        tokenize_ahead(tournament.matrix, shown.say)
        folder, matrix = tournament.folder, _open_folder(tournament)
        with _locked(folder):
            if not (folder / PREDICTIONS).is_file():
                dump_predictions(predict_entrants(matrix, shown.say), folder)
            if not is_decided(matrix) and any(list_rounds(matrix)):
                matrix = _fit_budget(replace(tournament, matrix=matrix), began, shown)
            try:
                _run_rounds(matrix, folder, shown)
            except (KeyboardInterrupt, Stopped):
                _write(folder)  # a round that was not finished counts, too
                shown.say(f"stopped; go on with: seqfit compare {folder} --resume")
                raise
            return _write(folder)


def _open_folder(tournament: Tournament) -> Matrix:
    """The matrix that the folder has, made if it is new."""
    folder = tournament.folder
    if (folder / MATRIX).is_file():
        return load_matrix(folder)
    with told_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RUN_RECIPE, tournament.matrix.recipe)
    dump_matrix(tournament.matrix, folder, command=tournament.command)
    return tournament.matrix


def _fit_budget(tournament: Tournament, began: float, view: View) -> Matrix:
    """Steps that fit what is left, written down before the first trial."""
    matrix, folder = tournament.matrix, tournament.folder
    names = [trial.entrant for trial in list_rounds(matrix)[0]]
    view.say(f"rehearsal: a few steps of {', '.join(names)}, to see how many fit the budget")
    paces = rehearse(matrix, folder, names)
    try:
        decided = cut_steps(matrix, paces, (matrix.budget_seconds or 0.0) - (time.monotonic() - began))
    except RecipeError:
        shutil.rmtree(folder)  # no trial has run: a mistake leaves nothing behind
        raise
    dump_matrix(decided, folder, command=tournament.command)
    view.say(decided.notes[-1])
    return decided


def _run_rounds(matrix: Matrix, folder: Path, view: View) -> None:
    """Every trial that has no outcome yet."""
    rounds = list_rounds(matrix)
    now = Now(matrix, read_outcomes(folder), sum(map(len, rounds)))
    now = replace(now, step_seconds=_find_step_seconds(now, folder))
    for number, trials in enumerate(rounds, 1):
        ended = {_key(outcome) for outcome in now.outcomes}
        missing = [trial for trial in trials if _key(trial) not in ended]
        for trial in missing:
            now = _run_one(now, trial, folder, view)
        if missing:
            _write(folder)
            view.say(f"round {number} of {len(rounds)} is done: {say_standings(now)}")


def _key(item: Trial | Outcome) -> tuple[str, int, int]:
    return item.entrant, item.seed, item.repeat


def _run_one(now: Now, trial: Trial, folder: Path, view: View) -> Now:
    """One trial, with the table drawn meanwhile; where things stand after it."""
    started = time.monotonic()

    def tick(step: int) -> None:
        view.show(replace(now, trial=trial, step=step, running_seconds=time.monotonic() - started))

    outcome = run_trial(now.matrix, trial, folder, tick)
    add_outcome(outcome, folder)
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


def _write(folder: Path) -> Comparison:
    comparison = collect_comparison(folder)
    write_results(comparison)
    return comparison


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two tournaments in one folder would run the same trials."""
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise RunError(
            complain(
                f"another process runs the tournament in '{folder}'",
                "one at a time does",
                "Wait until it ends, or give another --out",
            )
        ) from error
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _stopped_orderly(folder: Path) -> Iterator[None]:
    """SIGTERM and a closed terminal end the trial that runs; in other threads than the main one they can't."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(
            complain(
                f"{signal.Signals(number).name} came",
                "a tournament that is asked to stop ends the trial that runs, and keeps those that are done",
                f"Go on with: seqfit compare {folder} --resume",
            )
        )

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_not_launched() -> None:
    if is_launched():
        raise RecipeError(
            complain(
                "seqfit compare is called inside torchrun, srun or accelerate",
                "it starts the processes of every trial itself",
                "Call it as one process",
            )
        )


def _check_nothing_else(overrides: Sequence[str], matrix: object, asked: Mapping[str, Any]) -> None:
    given = [*overrides, *(["a matrix"] if matrix is not None else []), *(name for name in asked if asked[name])]
    if given:
        raise RecipeError(
            complain(
                f"a comparison's folder is given to go on with, and {', '.join(map(str, given))}",
                "all trials of a comparison are of one matrix, which is in the folder",
                "Leave the folder alone and start a new comparison, or give the folder and --resume only",
            )
        )


def _find_earlier(name: str) -> Path:
    """The newest comparison of that name."""
    found = sorted(PLACE.glob(f"{name}-*/{MATRIX}"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise RunError(
            complain(
                f"--resume is given, and '{PLACE}' has no comparison of '{name}'",
                "one that was stopped has a folder to go on in",
                "Name its folder in the place of the recipe, or leave --resume out",
            )
        )
    return found[-1].parent


def _check_unchanged(folder: Path, built: Matrix) -> None:
    """What was asked for now is what the folder has; steps that a budget has cut don't count."""
    stored = load_matrix(folder)
    same = replace(stored, notes=built.notes, steps=stored.steps if stored.budget_seconds is None else built.steps)
    if same == built:
        return
    then, today = asdict(same), asdict(built)
    changed = [name for name in then if then[name] != today[name]]
    raise RunError(
        complain(
            f"'{folder}' holds a comparison of another matrix: {', '.join(changed)}",
            "all trials of a comparison are of one matrix",
            f"Go on with it as it is: seqfit compare {folder} --resume; or give another --out",
        )
    )
