"""Processes that tests start: none outlives its test, and ranks are forks of a process that has imported everything.

    with started([sys.executable, "-m", "seqfit", "train", ...]) as process: ...       ended with all its children
    run_forks(work, [("a",), ("b",)], [{"RANK": "0"}, {"RANK": "1"}], folder)          [(0, ""), (1, "Traceback ...")]

A fresh process spends seconds on importing torch and transformers, more than most ranks spend on training. So Python's
fork server imports them once, before anything has computed, and each rank is a fork of it with an environment of its
own. A fork ends without Python's own ending; what is about that needs `started`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 240.0
_PRELOADED = [
    "seqfit.training.train",
    "seqfit.parallel.pipeline",
    "torch.distributed.checkpoint.hf_storage",
    "transformers.models.t5.modeling_t5",
    "transformers.models.mt5.modeling_mt5",
    "transformers.models.umt5.modeling_umt5",
    "transformers.models.bert.modeling_bert",
]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(_PRELOADED)


def wait_until(happened: Callable[[], object], what: str = "it") -> None:
    """Patient, because others may need the cores: only what never happens fails."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"{what} has not happened within {PATIENCE_SECONDS:g} s"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Also where nobody has asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def default_handlers() -> Iterator[None]:
    """Signals as a terminal's shell leaves them, here and in processes that are started meanwhile.

    nohup ignores SIGHUP, and a script's `&` ignores SIGINT and SIGQUIT; whatever they start inherits that.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGQUIT: signal.SIG_DFL}
    usual |= {signal.SIGTERM: signal.SIG_DFL, signal.SIGUSR1: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def started(command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is killed at the end of the block, with those it has started, unless it has ended."""
    with subprocess.Popen(command, **settings) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                end_tree(process.pid)


def end_tree(pid: int) -> None:
    """SIGKILL to a process and all below it."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:  # ended meanwhile
            continue


def run_forks(
    target: Callable[..., int | None],
    calls: Sequence[tuple[Any, ...]],
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    *,
    timeout_seconds: float = 400,
) -> list[tuple[int | None, str]]:
    """target(*call) in a process for each call; exit codes (what it returns, or 1) and what was printed to stderr."""
    if str(ROOT) not in sys.path:  # a fork finds the target by its name
        sys.path.insert(0, str(ROOT))
    places = [folder / f".said-{uuid.uuid4().hex}" for _ in calls]
    forks = [
        _forks.Process(target=_run, args=(target, call, dict(environment), str(place)))
        for call, environment, place in zip(calls, environments, places, strict=True)
    ]
    try:
        for fork, place in zip(forks, places, strict=True):
            place.touch()
            fork.start()
        deadline = time.monotonic() + timeout_seconds
        for fork in forks:
            fork.join(max(0.0, deadline - time.monotonic()))
    finally:
        for fork in forks:
            if fork.is_alive() and fork.pid is not None:
                end_tree(fork.pid)
                fork.join()
    return [(fork.exitcode, place.read_text()) for fork, place in zip(forks, places, strict=True)]


def _run(target: Callable[..., int | None], call: tuple[Any, ...], environment: dict[str, str], said: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(said, os.O_WRONLY), 2)
    sys.exit(target(*call))
