"""Out of memory (OOM): the same global batch in smaller micro-batches; and a limit that makes it an error on a CPU.

In: a step that failed. Out: its batch in smaller micro-batches, for another attempt from the same weights. Nothing of
the failed attempt is left: its gradients are dropped, the RNG state is restored, and the weights are unchanged, because
the optimizer state is allocated before the first step, and only the update follows the last backward.

    micro-batches of 6,144 tokens     [a b c d]         out of memory in the backward
    half the size of that one         [a b] [c d]       the same update, and this size from now on, also after a resume

Where some weights may be updated already (OOM during the update, or updates in the backward), only a snapshot has the
weights that the step started with: `HalfUpdated`.

On OOM, all ranks retry the step: before its first collective an all-reduce (MIN) checks that every rank got that far
(seqfit.training.coordination). One that fails later leaves the others waiting in a collective: it leaves a note, and
all restart from the snapshot.

On a CPU, Linux grants more memory than there is and later kills a process that uses it. A limit makes OOM an error that
can be handled: RLIMIT_DATA counts the process's private writable mappings, at no cost, and refuses more; torch's
allocator then raises. In a container with a memory limit this is the default. Processes of one run that share the
container share what is left of it equally.

    --memory-limit 4GiB      container's limit 3 GiB, 1 GiB used; 0.5 GiB mapped by this process   ->   2.5 GiB
    the same, two processes                                                                        ->   1.5 GiB each
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from seqfit.data import GlobalBatch, Loader
from seqfit.errors import OutOfMemory, PeerLost, RecipeError, is_out_of_memory
from seqfit.hardware import read_limits
from seqfit.rundir import EventKind, RankNotes, RunWriter, records
from seqfit.step import TrainStep
from seqfit.system import data_limit, has_memory_limits
from seqfit.training.coordination import NO_OOM, Coordination
from seqfit.units import format_bytes

_T = TypeVar("_T")


class HalfUpdated(Exception):
    """OOM while weights were being updated."""


class OomRecovery:
    def __init__(self, step: TrainStep, loader: Loader, writer: RunWriter, coordination: Coordination) -> None:
        self._step = step
        self._loader = loader
        self._writer = writer
        self._coordination = coordination
        self._world = coordination.world
        self._known_splits: dict[int, int] = {}
        self._updates = 0  # before this step

    def expect(self, splits: Mapping[int, int]) -> None:
        """Sizes that an earlier process set after the snapshot that this one resumes from."""
        self._known_splits = dict(splits)

    def begin(self, number: int) -> None:
        if number in self._known_splits:
            self._limit_tokens(self._known_splits.pop(number))
        self._updates = self._step.updates
        self._coordination.begin_attempt()

    def halve(self, number: int, batch: GlobalBatch) -> GlobalBatch:
        """The same global batch in smaller micro-batches, on all ranks; nothing of the failed attempt is left."""
        half_updated = self._step.is_half_updated or self._step.updates != self._updates  # or OOM after the update
        self._step.drop()
        tokens, where = self._coordination.lowest_tokens, None
        if tokens == NO_OOM:  # it was this rank
            where = self._find_failed(number, batch)
            tokens = self._coordination.all_reduce(where["tokens"] // 2)
        failed = next(found for found in self._world.all_gather(where) if found is not None)
        self._limit_tokens(tokens)
        self._writer.event(records.OutOfMemoryEvent(number, action="retry", micro_batch_tokens=tokens, **failed))
        self._writer.sync()
        if half_updated:
            raise HalfUpdated
        self._coordination.begin_attempt()
        return self._loader.split_again(batch)

    def _limit_tokens(self, tokens: int) -> None:
        self._loader.rule = replace(self._loader.rule, tokens=min(tokens, self._loader.rule.tokens))

    def _find_failed(self, number: int, batch: GlobalBatch) -> dict[str, Any]:
        """The micro-batch that did not fit; in lockstep, where that is unknown, the largest one."""
        failed = batch.micro_batches[self._step.micro_batch]
        if self._step.parallel.lockstep:
            failed = max(batch.micro_batches, key=lambda micro: (micro.examples > 1, micro.tokens))
        rank = None if self._world.size == 1 else self._world.rank
        found: dict[str, Any] = {"phase": self._step.phase, "rank": rank}
        found |= {"examples": failed.examples, "tokens": failed.tokens}
        if failed.examples == 1:
            raise OutOfMemory(
                records.OutOfMemoryEvent(number, action="retry", **found).where,
                "a micro-batch has at least one example",
                "Set strategy.recompute=blocks (gradient checkpointing) or a smaller task.max_source_tokens; "
                "`seqfit plan` shows what fits",
            )
        if self._world.size > 1 and self._coordination.has_agreed:  # in a collective that this rank can't finish
            half = failed.tokens // 2
            event = records.OutOfMemoryEvent(number, action="restart", micro_batch_tokens=half, **found)
            RankNotes(self._writer.path).write(self._world.rank, event)
            raise PeerLost(
                event.message,
                "the other processes wait for this one there, so all of them have to restart",
                "A launcher restarts them (--max-restarts); otherwise resume with seqfit train --resume",
            )
        return found


def find_smaller_micro_batches(events: Iterable[Mapping[str, Any]], after: int) -> dict[int, int]:
    """Step -> tokens per micro-batch from that step on, for every OOM after a snapshot.

    A process that is killed after such a step has left no snapshot of it, only the event; a resume splits the steps
    before it as they were, and those after it as the event says.
    """
    limits: dict[int, int] = {}
    for event in events:
        data = event.get("data") or {}
        step, tokens = data.get("step"), data.get("micro_batch_tokens")
        if event.get("kind") == EventKind.OUT_OF_MEMORY and tokens is not None and step is not None and step > after:
            limits[step] = min(tokens, limits.get(step, tokens))
    return limits


def attempt(action: Callable[[], _T]) -> _T | None:
    """What it returns; None after OOM, when everything that it allocated is freed."""
    try:
        return action()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free_memory()  # the error is gone here, and with it the frames that held tensors
    return None


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    elif platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)  # a fragmented heap may lack room for what would fit


@contextlib.contextmanager
def limited_memory(given_bytes: int | None, device: torch.device, sharers: int = 1) -> Iterator[int | None]:
    """Holds inside the block; yields the limit in bytes, None where there is none.

    `sharers`: processes of the run on this machine. A given limit holds for each of them.
    """
    if device.type != "cpu" or not has_memory_limits():
        if given_bytes is not None:
            raise RecipeError(
                f"--memory-limit is given for training on {device.type}",
                "it limits the memory of a process that trains on a CPU under Linux",
                "Leave it out: the GPU's memory is the limit",
            )
        yield None
        return
    used_bytes = _read_used_bytes()
    left_bytes = read_limits().left_bytes(sharers)
    # A cgroup counts what is resident; the limit counts what is mapped.
    limits = [given_bytes, None if left_bytes is None else used_bytes + left_bytes]
    limit_bytes = min((limit for limit in limits if limit is not None), default=None)
    if given_bytes is not None and limit_bytes is not None and limit_bytes <= used_bytes:
        raise RecipeError(
            f"--memory-limit leaves {format_bytes(limit_bytes)}",
            f"Python and its libraries already use {format_bytes(used_bytes)}",
            "Raise --memory-limit",
        )
    with contextlib.nullcontext() if limit_bytes is None else data_limit(limit_bytes):
        yield limit_bytes


def _read_used_bytes() -> int:
    """What counts against the limit so far."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
