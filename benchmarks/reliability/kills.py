"""Runs that are killed at random moments and resumed until they end, beside one that is left alone.

In: a recipe and a number of kills. Out: whether the ends are bit-identical, and where the kills fell. What is
killed is forked from a process that has torch imported and has trained nothing yet: a try takes a second and not ten;
it is ended by SIGKILL, which no handler sees.

    left alone    step 1 2 3 4 5 6 ... 24                                    checkpoint A, snapshot a
    killed        1 2 3 x   3 4 5 6 x   x   6 7 ...   24                     checkpoint B, snapshot b      A = B, a = b
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from seqfit.rundir import files
from seqfit.rundir.reader import Run
from seqfit.training.snapshot_files import find_snapshots

Recipe = dict[str, Any]


@dataclass
class Kills:
    """What was done to some runs."""

    kills: int = 0
    runs: int = 0
    during_a_snapshot: int = 0  # found half-written afterwards
    before_the_first_snapshot: int = 0
    unreadable: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)


def kill_runs(recipe: Recipe, folder: Path, kills: int, seed: int = 0) -> Kills:
    """Train the recipe again and again, each time with kills, until there were so many."""
    from seqfit.training.train import train  # imports torch, before the first fork

    draw = random.Random(seed)
    whole = folder / "whole"
    started = time.perf_counter()
    assert _fork(lambda: train(recipe, out=whole)) == 0
    seconds = time.perf_counter() - started
    reported = Kills()
    while reported.kills < kills:
        reported.runs += 1
        place = folder / f"run-{reported.runs}"
        while _fork(partial(train, recipe, out=place, resume=True), kill_after=_draw(draw, reported, kills, seconds)):
            reported.kills += 1
            _look(place, reported)
            if _is_finished(place):  # killed between its last record and the end of its process
                break
        reported.different += [f"{place.name}: {what}" for what in find_differences(Run(whole), Run(place))]
    return reported


def _draw(draw: random.Random, reported: Kills, kills: int, seconds: float) -> float | None:
    """When to kill: anywhere in the time that a whole run takes, so most tries end early and some not at all."""
    return None if reported.kills >= kills else draw.uniform(0.02, 1.1) * seconds


def _fork(train: Callable[[], object], kill_after: float | None = None) -> int:
    """0 where it ended by itself; the signal's number where it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("a run failed by itself; what it said is above")
    return 0 if os.WIFEXITED(status) else os.WTERMSIG(status)


def _look(place: Path, reported: Kills) -> None:
    """At what a killed run has left."""
    if not (place / files.MANIFEST).is_file():
        return  # it had not begun
    reported.during_a_snapshot += any((place / files.SNAPSHOTS).glob(".*.new"))
    reported.before_the_first_snapshot += not find_snapshots(place)
    try:
        run = Run(place)
        _ = run.manifest, run.steps(), run.evaluations(), run.events(), run.telemetry()
    except Exception as error:
        reported.unreadable.append(f"{place.name}: {type(error).__name__}: {error}")


def _is_finished(place: Path) -> bool:
    """Such a run has nothing to go on with, and a resume of it is refused."""
    return (place / files.MANIFEST).is_file() and Run(place).status == "finished"


def find_differences(one: Run, other: Run) -> list[str]:
    """In the best model, the last snapshot's tensors, and what the records say of losses and scores."""
    last = [find_snapshots(run.path)[0] / "state.safetensors" for run in (one, other)]
    best = [run.checkpoint / "model.safetensors" for run in (one, other)]
    different = [
        name
        for name, (left, right) in {"the last snapshot": last, "the checkpoint": best}.items()
        if left.read_bytes() != right.read_bytes()
    ]
    for name, read in {"steps": Run.steps, "evaluations": Run.evaluations}.items():
        kept = ("step", "loss", "gradient_norm", "learning_rate", "scores", "epoch", "target_tokens")
        left, right = ([{key: record.get(key) for key in kept} for record in read(run)] for run in (one, other))
        different += [name] if left != right else []
    return different
