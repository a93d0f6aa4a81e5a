"""A tokenized split as global batches of micro-batches, epoch after epoch, prepared in the background.

    for batch in loader.iterate(first_step=0):     # one GlobalBatch per optimizer step, from any position
        batch.micro_batches                        # tensors on the host
        batch.target_tokens                        # what the step's loss is divided by: known before the forward

`Loader.prefetch` prepares batches while the device works on earlier ones; their order and content stay the same:

    ahead = 2      the loop has batch 5, the thread has prepared 6 and 7 and waits
                   the loop takes 6, the thread prepares 8

One thread builds the tensors: numpy's copies release the GIL, and one thread keeps the order. With a GPU the tensors go
into pinned memory, from which a copy to the device does not block the host.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch

from seqfit.data.batching import CostModel, MicroBatchRule, RowLengths, RowNumbers, order_epoch, split_global_batches
from seqfit.data.micro_batch import MicroBatch, Padding, Split


@dataclass(frozen=True)
class GlobalBatch:
    """All examples of one optimizer step. Each rank has its own micro-batches; all other fields are of all ranks."""

    rows: RowNumbers
    micro_batches: list[MicroBatch]
    epoch: float  # after this step
    examples: int
    source_tokens: int
    target_tokens: int
    padded_tokens: int
    rule: MicroBatchRule | None = None  # that a loader split it by
    imbalance: float = 0.0  # by how much the predicted cost of the busiest rank exceeds the mean

    @property
    def loss_terms(self) -> int:
        """What the sum of losses is divided by: target tokens, or examples of a classifier."""
        return self.target_tokens or self.examples

    def pin(self, device: int) -> GlobalBatch:
        """Its tensors in pinned memory. Without `device` a thread would open a CUDA context on GPU 0."""
        with torch.cuda.device(device):
            return replace(self, micro_batches=[micro_batch.pin() for micro_batch in self.micro_batches])


@dataclass(frozen=True)
class Share:
    """The part of every global batch that a rank loads."""

    rank: int = 0
    ranks: int = 1
    lockstep: bool = False  # all ranks need equally many micro-batches, because each of them communicates
    cost: CostModel = field(default_factory=CostModel)


class Loader:
    """Batches of a training split. The rows of a step depend on the seed alone, not on how a batch is split."""

    def __init__(
        self,
        split: Split,
        padding: Padding,
        rule: MicroBatchRule,
        *,
        batch_examples: int | None,
        batch_tokens: int | None,
        seed: int,
        share: Share | None = None,
    ) -> None:
        self._split = split
        self._padding = padding
        self.rule = rule  # may change between two steps; batches are split by it from then on
        self._split_epoch = partial(
            self.split_epoch, split, batch_examples=batch_examples, batch_tokens=batch_tokens, seed=seed
        )
        self._share = share or Share()  # the whole batch
        assert len(split.source_lengths) > 0  # without rows `iterate` would never yield

    def count_steps(self, epochs: float) -> int:
        """Optimizer steps in this many epochs; a part of an epoch is rounded up."""
        whole = sum(self._steps_in(epoch) for epoch in range(int(epochs)))
        part = epochs - int(epochs)
        if part == 0:
            return whole
        return whole + math.ceil(round(part * self._steps_in(int(epochs)), 6))  # 0.1 x 10 is 1.0000000000000009 here

    def iterate(self, first_step: int = 0) -> Iterator[GlobalBatch]:
        """Endless; `first_step` skips the batches that an earlier part of the run has seen."""
        epoch, skip = 0, first_step
        while True:
            batches = list(self._split_epoch(epoch))
            for number, rows in enumerate(batches, 1):
                if skip:
                    skip -= 1
                    continue
                yield self._load(rows, epoch + number / len(batches))
            epoch += 1

    def prefetch(self, first_step: int, steps: int, ahead: int, *, pin: bool) -> Generator[GlobalBatch]:
        """So many batches, `ahead` of them prepared early (0: none), in pinned memory for a GPU.

        Exhaust or close it: until then its thread stays alive.
        """
        batches: Iterator[GlobalBatch] = islice(self.iterate(first_step), steps)
        if pin:
            device = torch.cuda.current_device()
            batches = (batch.pin(device) for batch in batches)
        return run_ahead(batches, ahead)

    def split_again(self, batch: GlobalBatch) -> GlobalBatch:
        """The same rows, split by the current rule."""
        return batch if batch.rule == self.rule else self._load(batch.rows, batch.epoch)

    def load(self, rows: Sequence[int]) -> GlobalBatch:
        """A batch of given rows; its epoch is NaN."""
        return self._load(np.array(rows, dtype=np.int64), math.nan)

    def lengths(self, batch: GlobalBatch) -> tuple[RowLengths, RowLengths]:
        """Real source and target tokens of each of a batch's examples."""
        return self._split.source_lengths[batch.rows], self._split.target_lengths[batch.rows]

    @staticmethod
    def split_epoch(
        split: Split, epoch: int, *, batch_examples: int | None, batch_tokens: int | None, seed: int
    ) -> Iterator[RowNumbers]:
        """The rows of each step of an epoch."""
        order = order_epoch(split.source_index, split.weights, seed, epoch)
        lengths = split.source_lengths + split.target_lengths
        return split_global_batches(order, lengths, examples=batch_examples, tokens=batch_tokens)

    def _steps_in(self, epoch: int) -> int:
        return sum(1 for _ in self._split_epoch(epoch))

    def _load(self, rows: RowNumbers, epoch: float) -> GlobalBatch:
        rule = self.rule  # once: another thread may set a new one meanwhile
        source, target = self._split.source_lengths, self._split.target_lengths
        costs = self._share.cost.costs(source[rows], target[rows])
        assigned = self._share.cost.assign(rows, source, target, self._share.ranks) if self._share.ranks > 1 else [rows]
        least = max(rule.count_packed(int((source[part] + target[part]).sum())) for part in assigned)
        pieces = [list(rule.split(part, source, target, least=least)) for part in assigned]
        loads = [float(self._share.cost.costs(source[part], target[part]).sum()) for part in assigned]
        return GlobalBatch(
            rows=rows,
            micro_batches=self._collate(pieces, rule, shortest=rows[[int(np.argmin(costs))]]),
            epoch=epoch,
            examples=len(rows),
            source_tokens=int(source[rows].sum()),
            target_tokens=int(target[rows].sum()),
            padded_tokens=sum(rule.count_padding(source[piece], target[piece]) for part in pieces for piece in part),
            rule=rule,
            imbalance=max(loads) / (sum(loads) / len(loads)) - 1,
        )

    def _collate(self, pieces: list[list[RowNumbers]], rule: MicroBatchRule, shortest: RowNumbers) -> list[MicroBatch]:
        """This rank's micro-batches, and dummies where it has fewer than the others."""
        own = [MicroBatch.load(self._split, piece, rule, self._padding) for piece in pieces[self._share.rank]]
        wanted = max(map(len, pieces)) if self._share.lockstep else 1
        for _ in range(wanted - len(own)):
            own.append(replace(MicroBatch.load(self._split, shortest, rule, self._padding), is_dummy=True))
        return own


THREAD_NAME = "seqfit-prefetch"
_T = TypeVar("_T")
_END: Any = object()


def run_ahead(items: Iterator[_T], ahead: int) -> Generator[_T]:
    """The same items, produced in a thread. An exception is raised here, in the item's place."""
    if ahead == 0:
        yield from items
        return
    with ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME) as thread:
        waiting: deque[Future[_T]] = deque(thread.submit(next, items, _END) for _ in range(ahead))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, items, _END))
                yield item
        finally:
            for future in waiting:  # leaving the executor then waits for the one item in progress, if any
                future.cancel()
