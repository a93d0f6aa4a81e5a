"""One trial: a fresh `seqfit train` process for a candidate, a seed and a repeat; an `Outcome` goes out.

    seqfit train COMPARISON/recipe.yaml strategy.recompute=blocks ... train.steps=40 seed=0
        --out COMPARISON/runs/recompute-seed0-repeat1

This line can be run again by hand. Candidates of several processes add --nproc, and the launcher starts them. A trial
does not plan, and its number of threads is set, so that all candidates have the same cores. It prints to logs/.

Out of memory (OOM) is a result: a step that was repeated with smaller micro-batches is noted with a finished trial; one
that can't run at all ends the trial, with an exit code of its own. Any other end is a failure, whose reason is the
`given` field of the error, from a file next to the log.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from seqfit.comparison.matrix import build_overrides, build_recipe, find_candidate
from seqfit.comparison.records import TRIAL_RUNS, Matrix, Outcome, State, Trial
from seqfit.errors import ERROR_FILE, OutOfMemory, RunError, describe_exit, read_error
from seqfit.hub import is_remote_code_trusted
from seqfit.processes import ChildProcess, kill_processes, read_last_lines
from seqfit.rundir import EventKind, RecordFile, RunWriter, files
from seqfit.strategy import load_strategy
from seqfit.system import KILLED
from seqfit.training import CALIBRATED, TRIAL, UNSCORED, WATCHED

LOGS = "logs"
Tick = Callable[[int], None]  # called with the last step that was logged
_TICK_SECONDS = 1.0  # not more often: it takes time from the trial
_KERNEL_COUNTS = Path("/proc/vmstat")


def run_trial(matrix: Matrix, trial: Trial, folder: Path, tick: Tick = lambda _: None) -> Outcome:
    """Runs it to its end. What an earlier attempt has left is removed first."""
    run, log = folder / TRIAL_RUNS / trial.folder, folder / LOGS / f"{trial.folder}.txt"
    _end_earlier(run)
    if run.exists():
        shutil.rmtree(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    _error_file(log).unlink(missing_ok=True)
    kills, started = count_kernel_kills(), time.monotonic()
    argv = [sys.executable, "-m", "seqfit", *build_command(matrix, trial, folder)]
    with ChildProcess(argv, log, env=_build_environment(matrix, trial, run, log)) as child:
        code = child.wait(lambda: tick(read_last_step(run)), tick_seconds=_TICK_SECONDS)
    state, reason = classify_end(code, log, run, was_killed=count_kernel_kills() > kills)
    for name in (files.SNAPSHOTS, *([files.CHECKPOINT] if trial.repeat else [])):
        if (run / name).is_dir():  # a repeat is the same training: the model of the first one is enough
            shutil.rmtree(run / name)
    seconds = time.monotonic() - started
    return Outcome(trial.candidate, trial.seed, trial.repeat, state, reason, seconds, time.time(), name_node())


def name_node() -> str:
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def _end_earlier(run: Path) -> None:
    """A trial outlives a comparison that was killed, and would slow down the next one.

    The lock of its run is not enough to find it: while it imports torch there is no run directory yet, and once there
    is one the next trial would be refused.
    """
    kill_processes([process for process in psutil.process_iter() if _is_trial(process, run)])
    if RunWriter.is_writing(run):
        raise RunError(
            f"'{run}' is still being trained",
            "trials run one at a time, and this process is no trial of this comparison on this machine",
            "End that process or wait for it, then resume",
        )


def _is_trial(process: psutil.Process, run: Path) -> bool:
    """Whether a comparison has started it, or its parent, to train this run: nothing else sets the variable."""
    try:
        return process.environ().get(TRIAL) == str(run.absolute())
    except psutil.Error:  # ended meanwhile, or of another user
        return False


def build_command(matrix: Matrix, trial: Trial, folder: Path) -> list[str]:
    candidate = find_candidate(matrix, trial.candidate)
    several = ["--nproc", str(candidate.processes), "--max-restarts", "0"] if candidate.processes > 1 else []
    trust = ["--trust-remote-code"] if is_remote_code_trusted() else []
    overrides = build_overrides(matrix, candidate, trial.seed)
    place = ["--out", str(folder / TRIAL_RUNS / trial.folder)]
    return ["train", str(folder / files.RECIPE), *overrides, *place, *several, *trust]


def _build_environment(matrix: Matrix, trial: Trial, run: Path, log: Path) -> dict[str, str]:
    recipe = build_recipe(matrix, find_candidate(matrix, trial.candidate), trial.seed)
    return {
        "SEQFIT_PREDICTION": "off",
        "OMP_NUM_THREADS": str(load_strategy(recipe).threads or 1),
        "COLUMNS": "120",
        CALIBRATED: "1",  # how fast the machine is, between steps
        TRIAL: str(run.absolute()),
        ERROR_FILE: str(_error_file(log)),
        # A repeat is the same training: peak and scores of the first one hold. The peak is measured in warm-up steps.
        **({UNSCORED: "1"} if trial.repeat else {WATCHED: str(matrix.warm_up)}),
    }


def classify_end(code: int, log: Path, run: Path, *, was_killed: bool) -> tuple[State, str]:
    if code == 0:
        events = RecordFile(run / files.EVENTS).read()
        found = [event["message"] for event in events if event["kind"] == EventKind.OUT_OF_MEMORY]
        return "finished", f"recovered from OOM: {found[-1]}" if found else ""
    error = read_error(_error_file(log))
    if was_killed and KILLED in (code, error.get("child_code")):  # the latter: one of several processes
        return "out_of_memory", "killed by the kernel: the machine ran out of memory"
    if code < 0:
        done = read_last_step(run)
        return "failed", f"it {describe_exit(code)} {f'after step {done}' if done else 'before its first step'}"
    reason = error.get("given") or "".join(read_last_lines(log, 1)).strip() or describe_exit(code)  # of a traceback
    return ("out_of_memory" if code == OutOfMemory.exit_code else "failed"), reason


def _error_file(log: Path) -> Path:
    return log.with_suffix(".error.json")


def count_kernel_kills() -> int:
    """Processes that Linux has killed because of low memory since it started; 0 where this is not counted."""
    try:
        text = _KERNEL_COUNTS.read_text("utf-8")
    except OSError:
        return 0
    counts = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(counts[1]) if counts else 0


def read_last_step(run: Path) -> int:
    """Of a run in progress; 0 before its first record."""
    record = RecordFile(run / files.STEPS).read_last()
    return 0 if record is None else int(record["step"])
