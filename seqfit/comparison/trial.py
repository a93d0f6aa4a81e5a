"""One trial: a fresh `seqfit train` process for an entrant, a seed and a repeat; how it ended goes out as an `Outcome`.

    seqfit train COMPARISON/recipe.yaml strategy.recompute=blocks ... train.steps=40 seed=0
        --out COMPARISON/runs/recompute-seed0-repeat1

Anybody can run that line again. Entrants of several processes add --nproc, and the launcher starts them. Nothing is
planned inside a trial, and threads are told, so that all entrants have the same cores. What it prints goes to logs/.

Out of memory (OOM) is a result: a step that was repeated with smaller micro-batches is noted with a finished trial, one
that could not be made ends it, with its own exit code. Any other end is a failure; its reason is what the error says
was given, as a field of a file beside the log.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from seqfit.comparison.matrix import build_overrides, build_recipe, find_candidate
from seqfit.comparison.records import TRIAL_RUNS, Matrix, Outcome, State, Trial
from seqfit.errors import ERROR_FILE, OutOfMemory, RunError, describe_exit, read_error
from seqfit.hub import is_remote_code_trusted
from seqfit.recipe.resolve import RUN_RECIPE
from seqfit.rundir import files
from seqfit.rundir.reader import is_being_written, read_last_record, read_records
from seqfit.rundir.records import EventKind
from seqfit.strategy.load import load_strategy
from seqfit.system import KILLED, own_session
from seqfit.training.trial_variables import CALIBRATED, TRIAL, UNSCORED, WATCHED

LOGS = "logs"
Tick = Callable[[int], None]  # told the last step that was logged
_TICK_SECONDS = 1.0  # seldom: who looks takes time from the trial
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 10.0  # for processes that were killed
_KERNEL_COUNTS = Path("/proc/vmstat")


def run_trial(matrix: Matrix, trial: Trial, folder: Path, tick: Tick = lambda _: None) -> Outcome:
    """Start it, wait for it, say how it ended. What an earlier try has left is removed first."""
    run, log = folder / TRIAL_RUNS / trial.folder, folder / LOGS / f"{trial.folder}.txt"
    _end_left(run)
    if run.exists():
        shutil.rmtree(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    _error_file(log).unlink(missing_ok=True)
    kills, started = count_kernel_kills(), time.monotonic()
    with log.open("wb") as said, _started(matrix, trial, folder, said.fileno()) as process:
        _wait(process, run, tick)
    state, reason = judge_end(process.returncode, log, run, was_killed=count_kernel_kills() > kills)
    _remove_weights(run, trial)
    seconds = time.monotonic() - started
    return Outcome(trial.entrant, trial.seed, trial.repeat, state, reason, seconds, time.time(), name_node())


def name_node() -> str:
    """This machine's name, or the one that Slurm has for it."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def _end_left(run: Path) -> None:
    """A trial outlives a tournament that was killed, and would be timed beside the next one.

    It need not hold the run's lock yet: while it imports torch there is no run directory, and once there is one the
    next trial would find it and be refused.
    """
    _kill([process for process in psutil.process_iter() if _is_trial(process, run)])
    if is_being_written(run):
        raise RunError(
            f"'{run}' is still being trained",
            "two at once are no fair comparison, and it is no trial of this tournament on this machine",
            "End that process or wait for it, then resume",
        )


def build_command(matrix: Matrix, trial: Trial, folder: Path) -> list[str]:
    """The words of `seqfit`."""
    entrant = find_candidate(matrix, trial.entrant)
    several = ["--nproc", str(entrant.processes), "--max-restarts", "0"] if entrant.processes > 1 else []
    trust = ["--trust-remote-code"] if is_remote_code_trusted() else []
    overrides = build_overrides(matrix, entrant, trial.seed)
    place = ["--out", str(folder / TRIAL_RUNS / trial.folder)]
    return ["train", str(folder / RUN_RECIPE), *overrides, *place, *several, *trust]


def judge_end(code: int, log: Path, run: Path, *, was_killed: bool) -> tuple[State, str]:
    """How a process ended, by its exit code and the fields of the error that it has left beside its log."""
    if code == 0:
        return "finished", _describe_recovery(run)
    error = read_error(_error_file(log))
    if was_killed and KILLED in (code, error.get("child_code")):  # the latter: one of several processes
        return "out_of_memory", "killed by the kernel: the machine ran out of memory"
    if code < 0:
        done = read_last_step(run)
        return "failed", f"it {describe_exit(code)} {f'after step {done}' if done else 'before its first step'}"
    is_memory = code == OutOfMemory.exit_code
    return ("out_of_memory" if is_memory else "failed"), error.get("given") or _last_line(log) or describe_exit(code)


def _error_file(log: Path) -> Path:
    return log.with_suffix(".error.json")


def count_kernel_kills() -> int:
    """Processes that Linux has ended for want of memory, since it started; 0 where nobody counts them."""
    try:
        text = _KERNEL_COUNTS.read_text("utf-8")
    except OSError:
        return 0
    counts = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(counts[1]) if counts else 0


@contextmanager
def _started(matrix: Matrix, trial: Trial, folder: Path, output: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process; if it still runs at the end, for whatever reason, it is ended with all that it has started."""
    entrant = find_candidate(matrix, trial.entrant)
    threads = load_strategy(build_recipe(matrix, entrant, trial.seed)).threads or 1
    own = {"SEQFIT_PREDICTION": "off", "OMP_NUM_THREADS": str(threads), "COLUMNS": "120"}
    if trial.repeat:  # the same training again: peak and scores of the first one hold
        own |= {UNSCORED: "1"}
    else:
        own |= {WATCHED: str(matrix.warm_up)}  # the peak of tensors, where no time is taken
    own |= {CALIBRATED: "1"}  # how fast the machine is, between steps
    own |= {TRIAL: str((folder / TRIAL_RUNS / trial.folder).absolute())}
    own |= {ERROR_FILE: str(_error_file(folder / LOGS / f"{trial.folder}.txt"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "seqfit", *build_command(matrix, trial, folder)],
        env=os.environ | own,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        **own_session(),  # Ctrl-C is for the tournament, which ends the trial
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process)


def _is_trial(process: psutil.Process, run: Path) -> bool:
    """Whether a tournament has started it, or what it has started, to train this run: nobody else sets the variable."""
    try:
        return process.environ().get(TRIAL) == str(run.absolute())
    except psutil.Error:  # ended meanwhile, or somebody else's
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """At once: a trial that is not finished begins anew, so nothing of it needs to be saved."""
    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    process.kill()
    _kill(started)
    process.wait()


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=_PATIENCE_SECONDS)


def _wait(process: subprocess.Popen[bytes], run: Path, tick: Tick) -> None:
    due = time.monotonic()
    while process.poll() is None:
        if time.monotonic() >= due:
            tick(read_last_step(run))
            due = time.monotonic() + _TICK_SECONDS
        time.sleep(_POLL_SECONDS)


def read_last_step(run: Path) -> int:
    """Of a run that goes on; 0 before its first record."""
    record = read_last_record(run / files.STEPS)
    return 0 if record is None else int(record["step"])


def _describe_recovery(run: Path) -> str:
    """'' or that steps were repeated with smaller micro-batches."""
    found = [event["message"] for event in read_records(run / files.EVENTS) if event["kind"] == EventKind.OUT_OF_MEMORY]
    return f"recovered from OOM: {found[-1]}" if found else ""


def _last_line(log: Path) -> str:
    """That of a traceback."""
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _remove_weights(run: Path, trial: Trial) -> None:
    """A repeat is the same training again, so the model of the first is enough."""
    for name in (files.SNAPSHOTS, *([files.CHECKPOINT] if trial.repeat else [])):
        if (run / name).is_dir():
            shutil.rmtree(run / name)
