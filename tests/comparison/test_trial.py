from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from seqfit.comparison import trial as module
from seqfit.comparison.records import TRIAL_RUNS, Matrix, Trial
from seqfit.comparison.trial import LOGS, build_command, classify_end, count_kernel_kills, read_last_step, run_trial
from seqfit.errors import RunError
from seqfit.rundir import RunWriter, files
from seqfit.training.trial_variables import TRIAL
from tests.comparison.comparisons import matrix_of, step_record
from tests.processes import has_ended, started, wait_until

BASELINE = Trial("baseline", 0, 0)


@pytest.fixture
def matrix() -> Matrix:
    return matrix_of(strategies="baseline,recompute,ddp2", steps=6)


def instead_of_python(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Trials start this shell script, whose $run is their run directory."""
    program = folder / "python"
    find = 'for word; do [ "$before" = --out ] && run=$word; before=$word; done'
    program.write_text(f"#!/bin/sh\n{find}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_trial_is_a_command_that_anybody_can_run_again(matrix: Matrix) -> None:
    words = build_command(matrix, Trial("recompute", 3, 1), Path("c"))
    assert words[:2] == ["train", "c/recipe.yaml"]
    assert {"strategy.recompute=blocks", "train.steps=6", "eval.every_steps=6", "seed=3"} <= set(words)
    assert words[-2:] == ["--out", "c/runs/recompute-seed3-repeat1"]


def test_several_processes_are_started_by_the_launcher_and_never_again(matrix: Matrix) -> None:
    assert build_command(matrix, Trial("ddp2", 0, 0), Path("c"))[-4:] == ["--nproc", "2", "--max-restarts", "0"]


def test_a_trial_plans_nothing_and_gets_its_threads(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_python(monkeypatch, tmp_path, 'echo "prediction $SEQFIT_PREDICTION threads $OMP_NUM_THREADS"')
    run_trial(matrix, BASELINE, tmp_path)
    run_trial(matrix, Trial("ddp2", 0, 0), tmp_path)
    said = [(tmp_path / LOGS / f"{name}-seed0-repeat0.txt").read_text() for name in ("baseline", "ddp2")]
    assert said == ["prediction off threads 2\n", "prediction off threads 1\n"]


def test_the_first_repeat_is_scored_and_watched_and_the_others_are_not(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_python(monkeypatch, tmp_path, 'echo "watched $SEQFIT_WATCHED_STEPS unscored $SEQFIT_UNSCORED"')
    said = []
    for repeat in range(2):
        run_trial(matrix, Trial("baseline", 0, repeat), tmp_path)
        said.append((tmp_path / LOGS / f"baseline-seed0-repeat{repeat}.txt").read_text())
    assert said == ["watched 3 unscored \n", "watched  unscored 1\n"]


def test_a_trial_that_ends_well_is_finished(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_python(monkeypatch, tmp_path, "sleep 0.2")
    outcome = run_trial(matrix, BASELINE, tmp_path)
    assert (outcome.state, outcome.reason) == ("finished", "")
    assert outcome.seconds >= 0.2
    assert abs(outcome.time - time.time()) < 3600


def test_what_an_earlier_try_has_left_is_removed(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / TRIAL_RUNS / BASELINE.folder / "left"
    left.mkdir(parents=True)
    instead_of_python(monkeypatch, tmp_path, '[ ! -e "$run" ]')
    assert run_trial(matrix, BASELINE, tmp_path).state == "finished"


ENDS: dict[str, tuple[dict[str, object], str, int, str, str]] = {  # error's fields, log, exit code -> state, reason
    "a step that fits no more": (
        {"given": "out of memory (OOM) at step 3, a micro-batch of 1 examples"},
        "error: out of memory (OOM) at step 3, a micro-batch of 1 examples. One example is the least. Set x.\n",
        4,
        "out_of_memory",
        "out of memory (OOM) at step 3, a micro-batch of 1 examples",
    ),
    "a loss that is NaN": (
        {"given": "the loss of step 2 is nan"},
        "step 1/6  loss 2.0\nerror: the loss of step 2 is nan. It must be finite. Set y.\n",
        3,
        "failed",
        "the loss of step 2 is nan",
    ),
    "words about memory are not read": (
        {"given": "'out of memory.csv' does not exist"},
        "error: 'out of memory.csv' does not exist. ...\n",
        2,
        "failed",
        "'out of memory.csv' does not exist",
    ),
    "a bug": (
        {},
        "Traceback (most recent call last):\nZeroDivisionError: division by zero\n",
        1,
        "failed",
        "ZeroDivisionError: division by zero",
    ),
    "no output": ({}, "", 5, "failed", "ended with exit code 5"),
    "a signal": (
        {},
        "step 1/6\n",
        -signal.SIGSEGV,
        "failed",
        "it was killed by SIGSEGV (signal 11) before its first step",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_how_a_trial_ended_is_known_by_its_code_and_the_fields_of_its_error(case: str, tmp_path: Path) -> None:
    fields, said, code, state, reason = ENDS[case]
    (tmp_path / "log.txt").write_text(said)
    if fields:
        (tmp_path / "log.error.json").write_text(json.dumps(fields))
    assert classify_end(code, tmp_path / "log.txt", tmp_path / "run", was_killed=False) == (state, reason)


def test_a_process_that_the_kernel_ended_ran_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.txt").write_text("")
    judged = [classify_end(-9, tmp_path / "log.txt", tmp_path, was_killed=killed)[0] for killed in (True, False)]
    assert judged == ["out_of_memory", "failed"]
    (tmp_path / "log.error.json").write_text(json.dumps({"given": "rank 1 was killed", "child_code": -9}))
    assert classify_end(76, tmp_path / "log.txt", tmp_path, was_killed=True)[0] == "out_of_memory"
    monkeypatch.setattr(module, "_KERNEL_COUNTS", tmp_path / "vmstat")
    assert count_kernel_kills() == 0
    (tmp_path / "vmstat").write_text("pgfault 7\noom_kill 3\n")
    assert count_kernel_kills() == 3


def test_a_trial_that_outlived_its_comparison_is_not_started_again_alongside_it(tmp_path: Path) -> None:
    with contextlib.closing(RunWriter.create(tmp_path / "runs" / BASELINE.folder)):
        with pytest.raises(RunError, match="is still being trained"):
            run_trial(matrix_of(), BASELINE, tmp_path)
        assert (tmp_path / "runs" / BASELINE.folder).is_dir()


HOLDS_THE_LOCK = "import fcntl; lock = open(sys.argv[1] + '/.lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)"
STILL_IMPORTS = "pass"  # and will create the run directory in a moment


@pytest.mark.parametrize("holds", [HOLDS_THE_LOCK, STILL_IMPORTS], ids=["trains", "imports"])
def test_a_trial_that_a_killed_comparison_has_left_is_ended_and_begun_again(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: str
) -> None:
    run = tmp_path / "runs" / BASELINE.folder
    if holds == HOLDS_THE_LOCK:
        run.mkdir(parents=True)
    program = f"import sys, time; {holds}; print('runs', flush=True); time.sleep(600)"
    environment = os.environ | {TRIAL: str(run)}
    command = [sys.executable, "-c", program, str(run)]
    with started(command, env=environment, stdout=subprocess.PIPE, text=True) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == "runs\n"
        instead_of_python(monkeypatch, tmp_path, "mkdir -p $run")
        assert run_trial(matrix, BASELINE, tmp_path).state == "finished"
        assert not psutil.pid_exists(left.pid)


def test_a_trial_and_all_it_starts_are_known_by_their_run(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    instead_of_python(monkeypatch, tmp_path, f'sh -c "echo \\${TRIAL}"')
    run_trial(matrix, BASELINE, Path("c"))
    said = (tmp_path / "c" / LOGS / f"{BASELINE.folder}.txt").read_text()
    assert said == f"{tmp_path / 'c' / TRIAL_RUNS / BASELINE.folder}\n"


def test_a_recovery_is_reported_with_the_finished_trial(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = json.dumps({"time": 1.0, "kind": "out-of-memory", "message": "step 2: split into 8 tokens", "data": {}})
    instead_of_python(monkeypatch, tmp_path, f"mkdir -p $run; echo '{event}' > $run/{files.EVENTS}")
    outcome = run_trial(matrix, BASELINE, tmp_path)
    assert outcome.state == "finished"
    assert outcome.reason == "recovered from OOM: step 2: split into 8 tokens"


def test_only_the_first_repeat_keeps_its_model(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of_python(monkeypatch, tmp_path, f"mkdir -p $run/{files.CHECKPOINT} $run/{files.SNAPSHOTS}/step-1")
    for repeat in (0, 1):
        run_trial(matrix, Trial("baseline", 0, repeat), tmp_path)
    left = {run.name: sorted(place.name for place in run.iterdir()) for run in (tmp_path / TRIAL_RUNS).iterdir()}
    assert left == {"baseline-seed0-repeat0": [files.CHECKPOINT], "baseline-seed0-repeat1": []}


def test_whoever_looks_gets_the_last_step(matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(json.dumps(asdict(step_record(number))) for number in (1, 2))
    (tmp_path / "lines").write_text(f'{lines}\n{{"step": 3, "lo')
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.01)
    instead_of_python(monkeypatch, tmp_path, f"mkdir -p $run; cp {tmp_path}/lines $run/{files.STEPS}; sleep 1")
    seen: list[int] = []
    run_trial(matrix, BASELINE, tmp_path, seen.append)
    assert seen[0] in (0, 2)
    assert seen[-1] == 2


def test_the_last_step_of_a_long_file_is_found_at_its_end(tmp_path: Path) -> None:
    lines = [json.dumps(asdict(step_record(number))) for number in range(1, 200)]
    (tmp_path / files.STEPS).write_text("\n".join(lines) + "\n")
    assert read_last_step(tmp_path) == 199
    assert read_last_step(tmp_path / "nothing") == 0


@pytest.mark.usefixtures("default_signals")
def test_a_comparison_that_is_interrupted_ends_the_trial_and_all_it_has_started(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_python(monkeypatch, tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait")

    waits = threading.Event()

    def interrupt() -> None:
        waits.wait()
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_trial(matrix, BASELINE, tmp_path, lambda _: waits.set())
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: has_ended(pid))
