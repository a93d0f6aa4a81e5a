"""Out of memory: the same global batch in smaller micro-batches; and a limit that makes it an error on a CPU.

What happens when memory runs out: the same global batch again, in smaller micro-batches, from the same weights.

In: a step that failed. Out: the step, made. Nothing of the failed try is left: its gradients are dropped, the
generators go back to where they were, and the weights have not moved, for the optimizer's state is there before the
first step and an update is all that follows the last backward.

    micro-batches of 6,144 tokens     [a b c d]         out of memory in the backward
    of half the failed one's          [a b] [c d]       the same update, and this cut from now on, also after a resume

Where some weights may have moved (in the middle of an update, or with updates inside the backward), only a snapshot has
the weights that the step began with: `HalfUpdated`.

Of several processes all make the step again. Before anything is exchanged each says whether it has come so far:

    rank 0   forward, backward ... fine ----+                       +---- drops its gradients, cuts smaller, again
    rank 1   forward, out of memory --------+-- lowest: 3,072 ------+---- drops its gradients, cuts smaller, again

One that fails later leaves the others waiting in an exchange: it leaves a note, and all begin anew from the snapshot.

A limit on the process's own memory, so that on a CPU, too, running out of it is an error that can be recovered from.

Without one, Linux hands out more memory than there is and later kills a process that uses it. The limit is the
system's own (RLIMIT_DATA): it tracks what the process maps for itself to write, heap and large blocks, without cost,
and refuses what goes beyond; torch's allocator then raises. In a container whose group may use so much and no more,
that is the limit where none is asked for. Processes of one run that share the group share what is left of it alike.

    --memory-limit 4GiB      group's limit 3 GiB, 1 GiB used; 0.5 GiB mapped by this process      ->      2.5 GiB
    the same, two processes                                                                       ->      1.5 GiB each
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from seqfit.data.loader import GlobalBatch, Loader
from seqfit.data.micro_batch import MicroBatch
from seqfit.errors import OutOfMemory, PeerLost, RecipeError, is_out_of_memory
from seqfit.hardware.process_memory import read_limits
from seqfit.rundir.events import OutOfMemoryEvent
from seqfit.rundir.notes import write_note
from seqfit.rundir.writer import RunWriter
from seqfit.step.rng import read_torch_states, restore_torch_states
from seqfit.step.step import StepOutcome, TrainStep
from seqfit.system import data_limit, has_memory_limits
from seqfit.training.coordination import NO_OOM, Coordination
from seqfit.training.nonfinite import NonFiniteHandler
from seqfit.units import format_bytes

_T = TypeVar("_T")


class _OthersFailed(Exception):
    """Another process has run out of memory in this step."""


class HalfUpdated(Exception):
    """Memory ran out while weights were being changed."""


class OomRecovery:
    """Makes steps, and makes them again where memory runs out."""

    def __init__(
        self,
        make: Callable[[int, GlobalBatch], StepOutcome],
        step: TrainStep,
        loader: Loader,
        numbers: NonFiniteHandler,
        writer: RunWriter,
        agreement: Coordination,
    ) -> None:
        self._make = make  # calls the step
        self._world = step.way.world
        self._agreement = agreement
        self._has_agreed = False  # in this try: the others count on this process
        step.before_exchange = self._agree
        self._step = step
        self._numbers = numbers
        self._loader = loader
        self._writer = writer
        self._known_cuts: dict[int, int] = {}
        self._others_failed = False
        self._lowest_tokens = NO_OOM

    def expect(self, cuts: Mapping[int, int]) -> None:
        """What an earlier process did after the snapshot that this one resumes from (`find_smaller_micro_batches`)."""
        self._known_cuts = dict(cuts)

    def make_step(self, number: int, batch: GlobalBatch) -> tuple[StepOutcome, GlobalBatch]:
        """The step, and its batch as it was cut in the end."""
        if number in self._known_cuts:
            self._cut_smaller(self._known_cuts.pop(number))
        batch = self._loader.split_again(batch)  # one that was prepared before the cut became smaller
        states = read_torch_states(self._step.precision.device)
        outcome, batch = self._try(number, batch, states)
        if self._numbers.wants_more_precision(number, outcome):
            restore_torch_states(states, self._step.precision.device)
            with self._step.full_precision():
                outcome, batch = self._try(number, batch, states)
        return outcome, batch

    def _try(self, number: int, batch: GlobalBatch, states: dict[str, torch.Tensor]) -> tuple[StepOutcome, GlobalBatch]:
        updates = self._step.updates
        while (outcome := self._attempt(number, batch)) is None:
            half_updated = self._step.is_half_updated or self._step.updates != updates  # or whole, and then it failed
            self._step.drop()
            self._make_smaller(number, batch)
            if half_updated:
                raise HalfUpdated
            restore_torch_states(states, self._step.precision.device)
            batch = self._loader.split_again(batch)
        return outcome, batch

    def _attempt(self, number: int, batch: GlobalBatch) -> StepOutcome | None:
        """None where memory ran out, here or elsewhere."""
        self._has_agreed = self._others_failed = False
        try:
            return attempt(partial(self._make, number, batch))
        except _OthersFailed:
            self._others_failed = True
            return None

    def _agree(self) -> None:
        """Whether all have come so far."""
        self._has_agreed = True
        self._lowest_tokens = self._agreement.exchange()
        if self._lowest_tokens != NO_OOM:
            raise _OthersFailed

    def _cut_smaller(self, tokens: int) -> None:
        self._loader.rule = replace(self._loader.rule, tokens=min(tokens, self._loader.rule.tokens))

    def _make_smaller(self, number: int, batch: GlobalBatch) -> None:
        """Halve what failed; of several processes the lowest half counts for all."""
        failed, tokens, where = self._find_failed(batch), self._lowest_tokens, None
        if not self._others_failed:
            tokens, where = self._halve(number, failed)
            if self._world.size > 1 and self._has_agreed:
                self._leave(number, tokens, where)
            tokens = self._agreement.exchange(tokens)
        phase, rank, examples, failed_tokens = next(
            found for found in self._world.all_gather(where) if found is not None
        )
        self._cut_smaller(tokens)
        self._writer.event(
            OutOfMemoryEvent(
                number, phase, "retry", micro_batch_tokens=tokens, rank=rank, examples=examples, tokens=failed_tokens
            )
        )
        self._writer.sync()

    def _find_failed(self, batch: GlobalBatch) -> MicroBatch:
        """The micro-batch that it failed with; where all run in step, who knows: the largest."""
        if not self._step.way.lockstep:
            return batch.micro_batches[self._step.micro_batch]
        return max(batch.micro_batches, key=lambda micro: (micro.examples > 1, micro.tokens))

    def _halve(self, number: int, failed: MicroBatch) -> tuple[int, list[Any]]:
        """Half its tokens, and where it failed: phase, rank, examples, tokens."""
        tokens, rank = failed.tokens, None if self._world.size == 1 else self._world.rank
        if failed.examples == 1:
            who = "" if rank is None else f"rank {rank}, "
            where = f"{who}step {number}, a micro-batch of {failed.examples} examples and {tokens} tokens"
            raise OutOfMemory(
                f"out of memory (OOM) at {where}",
                "one example is the least that a micro-batch can hold",
                "Set strategy.recompute=blocks or a smaller task.max_source_tokens; `seqfit plan` shows what fits",
            )
        return tokens // 2, [self._step.phase, rank, failed.examples, tokens]

    def _leave(self, number: int, tokens: int, where: list[Any]) -> NoReturn:
        """The others wait in an exchange that this process can't finish."""
        phase, rank, examples, failed_tokens = where
        event = OutOfMemoryEvent(
            number, phase, "restart", micro_batch_tokens=tokens, rank=rank, examples=examples, tokens=failed_tokens
        )
        write_note(self._writer.path, self._world.rank, event)
        raise PeerLost(
            event.message,
            "the other processes wait there for this one, so all have to begin anew",
            "A launcher does that by itself (--max-restarts); else go on with seqfit train --resume",
        )


def attempt(action: Callable[[], _T]) -> _T | None:
    """What it returns; None where memory ran out, and then nothing that it had made is alive any more."""
    try:
        return action()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # The error is gone here, and with it the frames that held activations.
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    elif platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)  # a heap in pieces may have no room for what would fit
    return None


_STATUS = Path("/proc/self/status")


@contextlib.contextmanager
def limited_memory(asked_bytes: int | None, device: torch.device, sharers: int = 1) -> Iterator[int | None]:
    """Holds inside the block; yields the limit in bytes, None where there is none.

    `sharers`: processes of the run on this machine. What is asked for holds for each of them.
    """
    limit_bytes = _choose_limit(asked_bytes, device, sharers)
    if limit_bytes is None:
        yield None
        return
    with data_limit(limit_bytes):
        yield limit_bytes


def _choose_limit(asked_bytes: int | None, device: torch.device, sharers: int) -> int | None:
    if device.type != "cpu" or not has_memory_limits():
        if asked_bytes is not None:
            raise RecipeError(
                f"--memory-limit is given for training on {device.type}",
                "it limits the memory of a process that trains on a CPU under Linux",
                "Leave it out: a GPU's own memory is its limit",
            )
        return None
    taken_bytes = _read_taken_bytes()
    left_bytes = read_limits().left_bytes(sharers)
    limits = [asked_bytes]
    if left_bytes is not None:  # a group counts what is resident; the limit counts what is mapped
        limits.append(taken_bytes + left_bytes)
    limit_bytes = min((limit for limit in limits if limit is not None), default=None)
    if asked_bytes is not None and limit_bytes is not None and limit_bytes <= taken_bytes:
        raise RecipeError(
            f"--memory-limit leaves {format_bytes(limit_bytes)}",
            f"Python and its libraries alone take {format_bytes(taken_bytes)}",
            "Give more",
        )
    return limit_bytes


def _read_taken_bytes() -> int:
    """What counts against the limit so far."""
    lines = _STATUS.read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
