"""A tokenized split as global batches of micro-batches, epoch after epoch, prepared in the background.

Turns a tokenized split into global batches of micro-batches, epoch after epoch, from any position.

for batch in loader.iterate(first_step=0):     # one GlobalBatch an optimizer step
    batch.micro_batches                        # tensors on the host
    batch.target_tokens                        # what the step's loss is divided by: known before the forward

Global batches prepared in the background while the device works on those before them.

Batches come in and go out in the same order, with the same content; only the waiting goes away.

    ahead = 2      the loop has batch 5, the thread has prepared 6 and 7 and waits
                   the loop takes 6, the thread prepares 8

Row ids become tensors of token ids in one thread: numpy's copies let go of the interpreter, and one thread keeps the
order. With a GPU the tensors go into pinned memory, from where a copy to the device does not stop the host.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from seqfit.data.batching import (
    TOKENS,
    CostModel,
    MicroBatchRule,
    RowLengths,
    RowNumbers,
    assign_rows,
    count_micro_batches,
    order_epoch,
    split_global_batches,
    split_micro_batches,
)
from seqfit.data.micro_batch import (
    MicroBatch,
    Padding,
    TokenIds,
    collate_labels,
    collate_sequences,
    pack_labels,
    pack_sequences,
)
from seqfit.tasks import Label


class Split(Protocol):
    """What the loader needs of a tokenized split."""

    @property
    def source_lengths(self) -> RowLengths: ...
    @property
    def target_lengths(self) -> RowLengths: ...
    @property
    def source_index(self) -> npt.NDArray[np.integer]: ...
    @property
    def weights(self) -> list[float]: ...
    def token_ids(self, row: int) -> tuple[TokenIds, TokenIds]: ...
    def label(self, row: int) -> Label: ...
    def target_language(self, row: int) -> str | None: ...


@dataclass(frozen=True)
class GlobalBatch:
    """All examples of one optimizer step. Of several ranks each has its own micro-batches; all else is of the whole."""

    rows: RowNumbers
    micro_batches: list[MicroBatch]
    epoch: float  # after this step
    examples: int
    source_tokens: int
    target_tokens: int
    padded_tokens: int
    rule: MicroBatchRule | None = None  # that it was cut by, where a loader did
    imbalance: float = 0.0  # by how much the predicted cost of the busiest rank exceeds the mean

    @property
    def loss_terms(self) -> int:
        """What the sum of losses is divided by: target tokens, or examples of a classifier."""
        return self.target_tokens or self.examples


def collate_rows(split: Split, rows: RowNumbers, rule: MicroBatchRule, padding: Padding) -> MicroBatch:
    """The tensors of some rows, packed or padded as the rule says."""
    pairs = [split.token_ids(int(row)) for row in rows]
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    labels = [split.label(int(row)) for row in rows] if padding.decoder_start_id is None else None
    if rule.batching == "packed":
        return pack_sequences(sources, targets, padding) if labels is None else pack_labels(sources, labels)
    shape = rule.padded_shape(int(split.source_lengths[rows].max()), int(split.target_lengths[rows].max()))
    if labels is None:
        return collate_sequences(sources, targets, padding, shape)
    return collate_labels(sources, labels, padding, shape[0])


@dataclass(frozen=True)
class Share:
    """Which part of every global batch a rank loads."""

    rank: int = 0
    ranks: int = 1
    lockstep: bool = False  # all ranks need as many micro-batches, for each has exchanges with the others in it
    cost: CostModel = TOKENS


WHOLE_BATCH_SHARE = Share()


class Loader:
    """Batches of a training split. What it yields at a step depends on the seed alone, not on the cut."""

    def __init__(
        self,
        split: Split,
        padding: Padding,
        rule: MicroBatchRule,
        *,
        batch_examples: int | None,
        batch_tokens: int | None,
        seed: int,
        share: Share = WHOLE_BATCH_SHARE,
    ) -> None:
        self._split = split
        self._padding = padding
        self.rule = rule  # may change between two steps: what is cut from then on follows it
        self._batch_examples = batch_examples
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._share = share
        self._lengths = split.source_lengths + split.target_lengths
        assert len(self._lengths) > 0  # `iterate` would look for a batch for ever

    def count_steps(self, epochs: float) -> int:
        """Optimizer steps in so many epochs; a part of an epoch is rounded up."""
        whole = sum(self._steps_in(epoch) for epoch in range(int(epochs)))
        part = epochs - int(epochs)
        if part == 0:
            return whole
        return whole + math.ceil(round(part * self._steps_in(int(epochs)), 6))  # 0.1 x 10 is 1.0000000000000009 here

    def iterate(self, first_step: int = 0) -> Iterator[GlobalBatch]:
        """Without end; `first_step` skips what an earlier part of the run has seen."""
        epoch, skip = 0, first_step
        while True:
            batches = list(self._cut(epoch))
            for number, rows in enumerate(batches, 1):
                if skip:
                    skip -= 1
                    continue
                yield self._load(rows, epoch + number / len(batches))
            epoch += 1

    def split_again(self, batch: GlobalBatch) -> GlobalBatch:
        """The same rows by the rule that holds now."""
        return batch if batch.rule == self.rule else self._load(batch.rows, batch.epoch)

    def load(self, rows: Sequence[int]) -> GlobalBatch:
        """Some rows as a batch; its epoch is not known."""
        return self._load(np.array(rows, dtype=np.int64), math.nan)

    def lengths(self, batch: GlobalBatch) -> tuple[RowLengths, RowLengths]:
        """Real source and target tokens of each of a batch's examples."""
        return self._split.source_lengths[batch.rows], self._split.target_lengths[batch.rows]

    def _cut(self, epoch: int) -> Iterator[RowNumbers]:
        order = order_epoch(self._split.source_index, self._split.weights, self._seed, epoch)
        return split_global_batches(order, self._lengths, examples=self._batch_examples, tokens=self._batch_tokens)

    def _steps_in(self, epoch: int) -> int:
        return sum(1 for _ in self._cut(epoch))

    def _load(self, rows: RowNumbers, epoch: float) -> GlobalBatch:
        rule = self.rule  # once: another thread may set a new one meanwhile
        source, target = self._split.source_lengths, self._split.target_lengths
        costs = self._share.cost.costs(source[rows], target[rows])
        dealt = assign_rows(rows, costs, self._share.ranks) if self._share.ranks > 1 else [rows]
        least = max(count_micro_batches(part, source, target, rule) for part in dealt)
        cut = [list(split_micro_batches(part, source, target, rule, least=least)) for part in dealt]
        loads = [float(self._share.cost.costs(source[part], target[part]).sum()) for part in dealt]
        return GlobalBatch(
            rows=rows,
            micro_batches=self._collate(cut, rule, shortest=rows[[int(np.argmin(costs))]]),
            epoch=epoch,
            examples=len(rows),
            source_tokens=int(source[rows].sum()),
            target_tokens=int(target[rows].sum()),
            padded_tokens=sum(rule.count_padding(source[piece], target[piece]) for part in cut for piece in part),
            rule=rule,
            imbalance=max(loads) / (sum(loads) / len(loads)) - 1,
        )

    def _collate(self, cut: list[list[RowNumbers]], rule: MicroBatchRule, shortest: RowNumbers) -> list[MicroBatch]:
        """This rank's micro-batches, with as many that don't count as it takes to keep up with the others."""
        own = [collate_rows(self._split, piece, rule, self._padding) for piece in cut[self._share.rank]]
        wanted = max(map(len, cut)) if self._share.lockstep else 1
        for _ in range(wanted - len(own)):
            own.append(replace(collate_rows(self._split, shortest, rule, self._padding), counts=False))
        return own


THREAD_NAME = "seqfit-prefetch"
_T = TypeVar("_T")


def prefetch(batches: Iterator[GlobalBatch], ahead: int, pin: bool) -> Generator[GlobalBatch]:
    """The same batches, `ahead` of them prepared early (0: none), pinned where a GPU will take them.

    Close it, or use it up: until then its thread waits for room.
    """
    if pin:
        batches = map(partial(pin_batch, device=torch.cuda.current_device()), batches)
    return run_ahead(batches, ahead)


def run_ahead(items: Iterator[_T], ahead: int) -> Generator[_T]:
    """The same items, taken from `items` by a thread. What it raises is raised here, in the item's place."""
    if ahead == 0:
        yield from items
        return
    with ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME) as thread:
        waiting: deque[Future[list[_T]]] = deque(thread.submit(_take, items) for _ in range(ahead))
        try:
            while taken := waiting.popleft().result():
                waiting.append(thread.submit(_take, items))
                yield taken[0]
        finally:
            for future in waiting:  # leaving the executor then waits for the one item in work, if any
                future.cancel()


def _take(items: Iterator[_T]) -> list[_T]:
    """The next item alone, or nothing at the end."""
    return list(islice(items, 1))


def pin_batch(batch: GlobalBatch, device: int) -> GlobalBatch:
    """Its tensors in pinned memory. A thread starts on GPU 0 and would open a context there, so it is told which."""
    with torch.cuda.device(device):
        return replace(batch, micro_batches=[_pin(micro_batch) for micro_batch in batch.micro_batches])


def _pin(batch: MicroBatch) -> MicroBatch:
    pinned: dict[str, Any] = {
        name: value.pin_memory() for name, value in vars(batch).items() if isinstance(value, torch.Tensor)
    }
    return replace(batch, **pinned)
