"""A tokenized split as global batches of micro-batches, epoch after epoch, prepared in the background.

    for batch in loader.iterate(first_step=0):     # one GlobalBatch per optimizer step, from any position
        batch.micro_batches                        # tensors on the host
        batch.target_tokens                        # what the step's loss is divided by: known before the forward

`Loader.prefetch` prepares batches in one thread, which keeps their order, while the device works on earlier ones. With
ahead = 2 the loop has batch 5 and the thread 6 and 7; when the loop takes 6, the thread prepares 8. With a GPU the
tensors go into pinned memory, from which a copy to the device does not block the host.

A micro-batch, packed or padded, is the input of a model's forward. B examples, S source, T target, N packed source
tokens, M packed target tokens:

    sources [5 6 1], [7 1]; targets [8 1], [9 3 1]; pad 0, decoder start 0
    padded   source_ids  5 6 1 | 7 1 0    source_mask  1 1 1 | 1 1 0
             decoder_ids 0 8 1 | 0 9 3    labels       8 1 -100 | 9 3 1
    packed   source_ids  5 6 1 7 1        source_lengths 3 2
             decoder_ids 0 8 0 9 3        labels 8 1 9 3 1    target_lengths 2 3
    mBART, PLBart: the last label is read first, so decoder_ids are 1 8 | 1 9 3
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from seqfit.data.batching import CostModel, MicroBatchRule, RowLengths, RowNumbers, order_epoch, split_global_batches
from seqfit.tasks import Label

TokenIds = npt.NDArray[np.integer]


class Split(Protocol):
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
class MicroBatch:
    """Tensors of one forward, and counts that can be read without a device sync."""

    IGNORED_LABEL: ClassVar = -100  # torch's cross-entropy leaves these labels out
    source_ids: torch.Tensor  # [B, S], packed [1, N]
    source_mask: torch.Tensor | None  # [B, S]; None where nothing is padded
    decoder_ids: torch.Tensor | None  # [B, T], packed [1, M]; None for a classifier
    labels: torch.Tensor  # [B, T], packed [1, M]; of a classifier [B], or [B, C] where any of C labels may apply
    examples: int
    source_tokens: int  # real tokens, without padding
    target_tokens: int
    padded_tokens: int  # added by padding
    source_lengths: tuple[int, ...] | None = None  # of the examples in a packed row
    target_lengths: tuple[int, ...] | None = None
    is_dummy: bool = False  # its loss counts 0: it keeps a rank with too few micro-batches in lockstep with the others

    @property
    def tokens(self) -> int:
        """In memory, padding included."""
        return self.source_tokens + self.target_tokens + self.padded_tokens

    def to(self, device: torch.device) -> MicroBatch:
        return self if device.type == "cpu" else self._change(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> MicroBatch:
        return self._change(lambda tensor: tensor.pin_memory())

    def _change(self, change: Callable[[torch.Tensor], torch.Tensor]) -> MicroBatch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in tensors.items()}
        return replace(self, **changed)

    @classmethod
    def load(cls, split: Split, rows: RowNumbers, rule: MicroBatchRule, padding: Padding) -> MicroBatch:
        pairs = [split.token_ids(int(row)) for row in rows]
        labels = [split.label(int(row)) for row in rows] if padding.decoder_start_id is None else None
        shape = None
        if rule.batching != "packed":
            shape = rule.padded_shape(int(split.source_lengths[rows].max()), int(split.target_lengths[rows].max()))
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        return cls.collate(sources, targets, padding, labels=labels, shape=shape)

    @classmethod
    def collate(
        cls,
        sources: Sequence[TokenIds],
        targets: Sequence[TokenIds],
        padding: Padding,
        *,
        labels: Sequence[Label] | None = None,
        shape: tuple[int, int] | None = None,
    ) -> MicroBatch:
        """All examples in one row each for sources and targets (packed), or padded to `shape` (source, target).

        With `labels`, one for each example, it is a classifier's batch, and `targets` are not used.
        """
        packed = shape is None
        source_ids = _arrange(sources, padding.pad_id, None if shape is None else shape[0])
        source_mask = None
        if shape is not None:  # from the lengths, not from the ids: a pad id may also be a real token
            is_real = np.arange(shape[0])[None, :] < np.array(list(map(len, sources)))[:, None]
            source_mask = torch.from_numpy(is_real.astype(np.int64))
        source_tokens, target_tokens, target_size = sum(map(len, sources)), 0, 0
        decoder_ids, label_tensor = None, None if labels is None else cls.stack_labels(labels)
        if label_tensor is None:
            label_ids = _arrange(targets, cls.IGNORED_LABEL, None if shape is None else shape[1])
            decoder_ids = torch.from_numpy(_shift_right(label_ids, targets, padding, packed=packed))
            label_tensor = torch.from_numpy(label_ids)
            target_tokens, target_size = sum(map(len, targets)), label_ids.size
        return cls(
            source_ids=torch.from_numpy(source_ids),
            source_mask=source_mask,
            decoder_ids=decoder_ids,
            labels=label_tensor,
            examples=len(sources),
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            padded_tokens=source_ids.size + target_size - source_tokens - target_tokens,
            source_lengths=tuple(map(len, sources)) if packed else None,
            target_lengths=tuple(map(len, targets)) if packed and labels is None else None,
        )

    @staticmethod
    def stack_labels(labels: Sequence[Label]) -> torch.Tensor:
        """As a classifier's loss takes them: classes [B] in int64, scores [B] or which labels apply [B, C] in fp32."""
        return torch.tensor(labels, dtype=torch.int64 if isinstance(labels[0], int) else torch.float32)


@dataclass(frozen=True)
class Padding:
    pad_id: int
    decoder_start_id: int | None = None  # None for a classifier
    starts_with_last_label: bool = False  # mBART, PLBart: the decoder reads the target's last token first instead


def _arrange(sequences: Sequence[TokenIds], filler: int, length: int | None) -> npt.NDArray[np.int64]:
    """[1, N] without a length, else [B, length]."""
    if length is None:
        return np.concatenate(sequences).astype(np.int64)[None]
    filled = np.full((len(sequences), length), filler, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        filled[row, : len(sequence)] = sequence
    return filled


def _shift_right(
    labels: npt.NDArray[np.int64], targets: Sequence[TokenIds], padding: Padding, *, packed: bool
) -> npt.NDArray[np.int64]:
    """What the decoder reads: the labels one place later, behind each target's start token."""
    start = padding.decoder_start_id
    assert start is not None
    shifted = np.full_like(labels, padding.pad_id)
    shifted[:, 1:] = np.where(labels[:, :-1] == MicroBatch.IGNORED_LABEL, padding.pad_id, labels[:, :-1])
    first = (0, np.cumsum([0, *map(len, targets[:-1])])) if packed else (slice(None), 0)
    shifted[first] = [int(one[-1]) if padding.starts_with_last_label and len(one) else start for one in targets]
    return shifted


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
        """So many batches, `ahead` of them prepared early. Exhaust or close it: its thread stays alive until then."""
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
        return self._split.source_lengths[batch.rows], self._split.target_lengths[batch.rows]

    @staticmethod
    def split_epoch(
        split: Split, epoch: int, *, batch_examples: int | None, batch_tokens: int | None, seed: int
    ) -> Iterator[RowNumbers]:
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
        own = [MicroBatch.load(self._split, piece, rule, self._padding) for piece in pieces[self._share.rank]]
        wanted = max(map(len, pieces)) if self._share.lockstep else 1
        for _ in range(wanted - len(own)):  # dummies where this rank has fewer than the others
            shortest = rows[[int(np.argmin(costs))]]
            own.append(replace(MicroBatch.load(self._split, shortest, rule, self._padding), is_dummy=True))
        loads = [float(self._share.cost.costs(source[part], target[part]).sum()) for part in assigned]
        return GlobalBatch(
            rows=rows,
            micro_batches=own,
            epoch=epoch,
            examples=len(rows),
            source_tokens=int(source[rows].sum()),
            target_tokens=int(target[rows].sum()),
            padded_tokens=sum(rule.count_padding(source[piece], target[piece]) for part in pieces for piece in part),
            rule=rule,
            imbalance=max(loads) / (sum(loads) / len(loads)) - 1,
        )


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
