"""One of several processes of a run, one of which meets a fault: `rank_with_fault.py RECIPE OUT FAULT [--resume]`.

RANK, WORLD_SIZE and the meeting place are in the environment. The faults happen on the last rank only.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import seqfit
from seqfit.errors import SeqfitError
from seqfit.parallel.way import Replicated
from seqfit.step.step import TrainStep
from seqfit.training.view import SilentView

NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
AT_STEP = 5


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
    """Memory runs out before the step has exchanged anything."""
    _patch_accumulate(before=True)


def _in_exchange() -> None:
    """Memory runs out behind the last backward, when the others wait."""
    _patch_accumulate(before=False)


def _patch_accumulate(*, before: bool) -> None:
    accumulate, call, seen = TrainStep._accumulate, TrainStep.__call__, {"steps": 0, "done": False}
    exchanging = Replicated.exchanging
    last_one: list[bool] = []

    def noting(self: Replicated, **place: Any) -> Any:
        last_one[:] = [place["last"]]
        return exchanging(self, **place)

    def counting(self: TrainStep, batch: Any) -> Any:
        seen["steps"] += 1
        return call(self, batch)

    def failing(self: TrainStep, batch: Any, terms: int) -> Any:
        due = seen["steps"] == AT_STEP and not seen["done"] and batch.examples > 1
        if before and due:
            seen["done"] = True
            raise RuntimeError(NO_MEMORY)
        loss = accumulate(self, batch, terms)
        if due and last_one[0] and not before:
            seen["done"] = True
            raise RuntimeError(NO_MEMORY)
        return loss

    TrainStep.__call__ = counting  # type: ignore[method-assign]
    TrainStep._accumulate = failing  # type: ignore[method-assign]
    Replicated.exchanging = noting  # type: ignore[method-assign]


def _signal() -> None:
    call, seen = TrainStep.__call__, [0]

    def signalling(self: TrainStep, batch: Any) -> Any:
        seen[0] += 1
        if seen[0] == AT_STEP:
            os.kill(os.getpid(), signal.SIGUSR1)
        return call(self, batch)

    TrainStep.__call__ = signalling  # type: ignore[method-assign]


def _not_finite() -> None:
    """A loss that is no number, on this rank alone."""
    accumulate, call, seen = TrainStep._accumulate, TrainStep.__call__, [0]

    def counting(self: TrainStep, batch: Any) -> Any:
        seen[0] += 1
        return call(self, batch)

    def poisoned(self: TrainStep, batch: Any, terms: int) -> Any:
        return accumulate(self, batch, terms) * (float("nan") if seen[0] == AT_STEP else 1.0)

    TrainStep.__call__ = counting  # type: ignore[method-assign]
    TrainStep._accumulate = poisoned  # type: ignore[method-assign]


def _raise() -> None:
    call, seen = TrainStep.__call__, [0]

    def raising(self: TrainStep, batch: Any) -> Any:
        seen[0] += 1
        if seen[0] == AT_STEP:
            raise ValueError("the disk of rank 1 is on fire")
        return call(self, batch)

    TrainStep.__call__ = raising  # type: ignore[method-assign]


def _disk_full() -> None:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    def fail(*_unused: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    HuggingFaceStorageWriter.write_data = fail  # type: ignore[method-assign]


def _nothing() -> None:
    pass


FAULTS = {
    "none": _nothing,
    "out-of-memory": _in_micro_batch,
    "out-of-memory-in-exchange": _in_exchange,
    "not-finite": _not_finite,
    "signal": _signal,
    "disk-full": _disk_full,
    "error": _raise,
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
