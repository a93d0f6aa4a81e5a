"""Runs that are left too little memory at one point of a step after another, beside one that has enough.

In: a recipe and a number of points. Out: what happened at each. Memory runs out for real: at the chosen operation the
process's limit (RLIMIT_DATA, what `--memory-limit` sets) is put down to what it has, and torch's allocator is asked for
more than is left; when the step has failed, the limit is lifted again.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqfit.rundir.reader import Run
from seqfit.step.step import TrainStep
from seqfit.training import setup
from seqfit.training.train import train

Recipe = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Of one run."""

    operation: int  # of the second step, at which memory was out
    phase: str
    finished: bool
    loss_difference: float  # the largest of any step
    weight_difference: float
    micro_batches: int  # of the last step


class Starve(TorchDispatchMode):
    """Takes all memory away at one operation."""

    def __init__(self, operation: int) -> None:
        super().__init__()
        self.left = operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Counts."""
        self.left -= 1
        if self.left == 0:
            with _no_more_memory() as has_bytes:
                # As a large temporary of this operation would. What is free of the heap can't hold all that is mapped.
                torch.empty(has_bytes + 2**21, dtype=torch.uint8)
        return func(*args, **(kwargs or {}))


@contextmanager
def _no_more_memory() -> Iterator[int]:
    """Yields what the process has mapped, which is also its limit."""
    ctypes.CDLL(None).malloc_trim(0)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    has = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (has + 2**20, before[1]))
    try:
        yield has
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def weights_of(dtype: torch.dtype) -> Iterator[None]:
    """Runs inside train in this type; a recipe has no word for it."""
    usual = setup._load

    def load(*arguments: Any) -> Any:
        loaded = usual(*arguments)
        loaded.model.to(dtype)
        return loaded

    setup._load = load
    try:
        yield
    finally:
        setup._load = usual


def count_operations(recipe: Recipe, folder: Path) -> int:
    """Of one step."""

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Count.seen += 1
            return func(*args, **(kwargs or {}))

    with _second_step_under(Count()):
        train(recipe, out=folder / "counted")
    return Count.seen


def starve_runs(recipe: Recipe, folder: Path, points: int, dtype: torch.dtype = torch.float32) -> list[Outcome]:
    """At so many operations, spread evenly over a step."""
    with weights_of(dtype):
        return _starve_runs(recipe, folder, points)


def _starve_runs(recipe: Recipe, folder: Path, points: int) -> list[Outcome]:
    recipe = recipe | {"train": recipe["train"] | {"snapshot": {"every_steps": 1}}}  # for points inside an update
    whole = train(recipe, out=folder / "whole")
    operations = count_operations(recipe, folder)
    outcomes = []
    for number in range(points):
        operation = 1 + number * (operations - 1) // max(1, points - 1)
        with _second_step_under(Starve(operation)):
            run = train(recipe, out=folder / f"starved-{operation}")
        outcomes.append(_compare(whole, run, operation))
    return outcomes


@contextmanager
def _second_step_under(mode: TorchDispatchMode) -> Iterator[None]:
    """The mode is entered for the first try of the second step alone."""
    stock, made = TrainStep.run, [0]

    def call(self: TrainStep, batch: Any) -> Any:
        made[0] += 1
        if made[0] != 2:
            return stock(self, batch)
        with mode:
            return stock(self, batch)

    TrainStep.run = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        TrainStep.run = stock  # type: ignore[method-assign]


def _compare(whole: Run, run: Run, operation: int) -> Outcome:
    from safetensors.torch import load_file

    events = [event["data"] for event in run.events() if event["kind"] == "out-of-memory" and event["data"]]
    left, right = (load_file(one.checkpoint / "model.safetensors") for one in (whole, run))
    pairs = zip(whole.steps(), run.steps(), strict=True)
    return Outcome(
        operation=operation,
        phase=str(events[0].get("phase", "optimizer")) if events else "none",
        finished=run.status == "finished",
        loss_difference=max(abs(one["loss"] - other["loss"]) for one, other in pairs),
        weight_difference=max(float((left[name] - right[name]).abs().max()) for name in left),
        micro_batches=run.steps()[-1]["micro_batches"],
    )
