"""One of several processes of a run, one of which meets a fault: `rank_with_fault.py RECIPE OUT FAULT [--resume]`.

RANK, WORLD_SIZE and the meeting place are in the environment. The faults happen on the last rank only.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import seqfit
from seqfit.errors import SeqfitError
from seqfit.parallel.distributed import DdpStrategy
from seqfit.step import step as step_module
from seqfit.step.step import ParallelStrategy, TrainStep
from seqfit.training.view import SilentView
from tests.training.frames import watch_backwards

NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
AT_STEP = 5
MOST_FRAMES = 5


def main(recipe: str, out: str, fault: str, *more: str) -> int:
    torch.set_num_threads(1)
    is_last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    if is_last:
        FAULTS[fault]()
    try:
        seqfit.train(json.loads(Path(recipe).read_text()), out=out, resume="--resume" in more, view=SilentView())
    except SeqfitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _in_micro_batch() -> None:
    """OOM before the first collective of the step."""
    _run_out_of_memory(before=True)


def _in_collective() -> None:
    """OOM after the last backward, when the others wait."""
    _run_out_of_memory(before=False)


def _run_out_of_memory(*, before: bool) -> None:
    run, loss_sum, communication = TrainStep.run, step_module.micro_batch_loss_sum, DdpStrategy.communication
    seen: dict[str, Any] = {"steps": 0, "done": False, "examples": 0}

    def fail_once() -> None:
        if seen["steps"] == AT_STEP and not seen["done"] and seen["examples"] > 1:
            seen["done"] = True
            raise RuntimeError(NO_MEMORY)

    def counting(self: TrainStep, batch: Any) -> Any:
        seen["steps"] += 1
        return run(self, batch)

    def failing(model: Any, batch: Any) -> Any:
        seen["examples"] = batch.examples
        if before:
            fail_once()
        return loss_sum(model, batch)

    @contextmanager
    def leaving(self: DdpStrategy, *, is_first: bool, is_last: bool) -> Iterator[None]:
        with communication(self, is_first=is_first, is_last=is_last):
            yield
        if is_last and not before:
            fail_once()

    TrainStep.run = counting  # type: ignore[method-assign]
    step_module.micro_batch_loss_sum = failing
    DdpStrategy.communication = leaving  # type: ignore[assignment,method-assign]


def _signal() -> None:
    call, seen = TrainStep.run, [0]

    def signalling(self: TrainStep, batch: Any) -> Any:
        seen[0] += 1
        if seen[0] == AT_STEP:
            os.kill(os.getpid(), signal.SIGUSR1)
        return call(self, batch)

    TrainStep.run = signalling  # type: ignore[method-assign]


def _not_finite() -> None:
    """A loss that is NaN, on this rank only."""
    run_batch, seen = ParallelStrategy.run_batch, [0]

    def poisoned(self: ParallelStrategy, step: TrainStep, batch: Any) -> Any:
        seen[0] += 1
        return run_batch(self, step, batch) * (float("nan") if seen[0] == AT_STEP else 1.0)

    ParallelStrategy.run_batch = poisoned  # type: ignore[method-assign]


def _raise() -> None:
    call, seen = TrainStep.run, [0]

    def raising(self: TrainStep, batch: Any) -> Any:
        seen[0] += 1
        if seen[0] == AT_STEP:
            raise ValueError("the disk of rank 1 is on fire")
        return call(self, batch)

    TrainStep.run = raising  # type: ignore[method-assign]


def _disk_full() -> None:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    def fail(*_unused: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    HuggingFaceStorageWriter.write_data = fail  # type: ignore[method-assign]


def _nothing() -> None:
    pass


def _count_frames() -> None:
    """No fault: from the loop to every backward are at most five functions of ours."""
    seen = watch_backwards()
    run = TrainStep.run

    def checked(self: TrainStep, batch: Any) -> Any:
        outcome = run(self, batch)
        assert seen
        assert all(names[:2] == ["run_training", "make_step"] for names in seen), seen[-1]
        assert all(len(names) <= MOST_FRAMES for names in seen), seen[-1]
        return outcome

    TrainStep.run = checked  # type: ignore[method-assign]


FAULTS = {
    "frames": _count_frames,
    "none": _nothing,
    "out-of-memory": _in_micro_batch,
    "out-of-memory-in-collective": _in_collective,
    "not-finite": _not_finite,
    "signal": _signal,
    "disk-full": _disk_full,
    "error": _raise,
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
