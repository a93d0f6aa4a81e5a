"""`seqfit profile` in a process of its own, so that a crash in compiled code is reported like any other error.

In: the command's argv. Out: nothing, or an error with how the process ended and what it was doing. torch's profiler
hooks into every operator and unwinds Python's stack while it runs; where that fails, no `except` sees it.

    seqfit profile demo          imports no torch: starts the line below, waits, and reads two small files
      seqfit profile demo        SEQFIT_PROFILE_WORKER=FOLDER: does all the work and has the terminal
        FOLDER/stage.txt         what it is doing: 'measuring', 'profiling', ...
        FOLDER/crash.txt         the Python lines at a fatal signal, by faulthandler
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seqfit.errors import TrainingFailed, describe_exit

WORKER = "SEQFIT_PROFILE_WORKER"
_INTERRUPTED = 130
_STAGE, _CRASH = "stage.txt", "crash.txt"
_SHOWN_LINES = 6
_GRACE_SECONDS = 10.0


def is_worker() -> bool:
    return WORKER in os.environ


def begin_work() -> None:
    """In the worker, before torch is imported: fatal signals leave their Python lines behind."""
    faulthandler.enable((Path(os.environ[WORKER]) / _CRASH).open("w"))


def report_stage(what: str) -> None:
    """In the worker: what it does from now on. No effect anywhere else."""
    if is_worker():
        with suppress(OSError):
            (Path(os.environ[WORKER]) / _STAGE).write_text(what, "utf-8")


def run_in_child(argv: Sequence[str], out: Path) -> int | None:
    """The worker's exit code, or an error if a signal killed it (`out` keeps the crash); None in the worker itself."""
    if is_worker():
        begin_work()
        return None
    with tempfile.TemporaryDirectory(prefix="seqfit-profile-") as folder:
        worker = subprocess.Popen([sys.executable, "-m", "seqfit", *argv], env=os.environ | {WORKER: folder})
        with _passed_on(worker):
            code = _wait(worker)
        if code == _INTERRUPTED or code == -signal.SIGINT:
            raise KeyboardInterrupt
        if code < 0 or code > 128:
            raise _explain(code, Path(folder), out)
        return code


def _wait(worker: subprocess.Popen[bytes]) -> int:
    """Ctrl-C reaches both processes; the worker ends by itself, and gets some time for it."""
    try:
        return worker.wait()
    except KeyboardInterrupt:
        try:
            return worker.wait(_GRACE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            worker.kill()
            worker.wait()
            return _INTERRUPTED


@contextmanager
def _passed_on(worker: subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGTERM is forwarded to the worker. Only a main thread may have handlers."""
    try:
        before = signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explain(code: int, folder: Path, out: Path) -> TrainingFailed:
    doing = _read(folder / _STAGE) or "starting"
    crash = _read(folder / _CRASH)
    lines = [line for line in crash.splitlines() if line.startswith("  File ")][:_SHOWN_LINES]
    kept = ""
    if crash:
        with suppress(OSError):
            out.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / _CRASH, out / _CRASH)
            kept = f"The full traceback is in {out / _CRASH}."
    where = f", at\n{chr(10).join(lines)}\n{kept}" if lines else ""
    return TrainingFailed(
        f"the profiling process {describe_exit(code)} while {doing}{where}",
        "Python code does not end like this: compiled code failed, the machine is out of memory (OOM), or somebody "
        "sent the signal",
        "Run the command again; if it fails again, try --steps 1, and report it with that file",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""
