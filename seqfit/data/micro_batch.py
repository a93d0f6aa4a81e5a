"""One micro-batch as tensors, packed or padded, with its token counts: the input of a model's forward.

Shapes: B examples, S source, T target, N packed source tokens, M packed target tokens.

    sources [5 6 1], [7 1]; targets [8 1], [9 3 1]; pad 0, decoder start 0
    padded   source_ids  5 6 1 | 7 1 0    source_mask  1 1 1 | 1 1 0
             decoder_ids 0 8 1 | 0 9 3    labels       8 1 -100 | 9 3 1
    packed   source_ids  5 6 1 7 1        source_lengths 3 2
             decoder_ids 0 8 0 9 3        labels 8 1 9 3 1    target_lengths 2 3
    mBART, PLBart: the last label is read first, so decoder_ids are 1 8 | 1 9 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch

from seqfit.data.batching import MicroBatchRule, RowLengths, RowNumbers
from seqfit.tasks import Label

TokenIds = npt.NDArray[np.integer]


class Split(Protocol):
    """What batches need of a tokenized split."""

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
        """In pinned memory, from which a copy to a GPU does not block the host."""
        return self._change(lambda tensor: tensor.pin_memory())

    def _change(self, change: Callable[[torch.Tensor], torch.Tensor]) -> MicroBatch:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in tensors.items()}
        return replace(self, **changed)

    @classmethod
    def load(cls, split: Split, rows: RowNumbers, rule: MicroBatchRule, padding: Padding) -> MicroBatch:
        """The tensors of some rows, packed or padded as the rule says."""
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
        source_tokens, target_tokens, target_size = sum(map(len, sources)), 0, 0
        decoder_ids, label_tensor = None, None if labels is None else cls.stack_labels(labels)
        if label_tensor is None:
            label_ids = _arrange(targets, cls.IGNORED_LABEL, None if shape is None else shape[1])
            decoder_ids = torch.from_numpy(_shift_right(label_ids, targets, padding, packed=packed))
            label_tensor = torch.from_numpy(label_ids)
            target_tokens, target_size = sum(map(len, targets)), label_ids.size
        return cls(
            source_ids=torch.from_numpy(source_ids),
            source_mask=None if shape is None else torch.from_numpy(_mask(sources, shape[0])),
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
    """The ids that a batch is padded with and that decoding starts with."""

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
    is_last_first = padding.starts_with_last_label
    starts = [int(target[-1]) if is_last_first and len(target) else start for target in targets]
    lengths = list(map(len, targets))
    first = (0, np.cumsum([0, *lengths[:-1]])) if packed else (slice(None), 0)
    shifted[first] = starts
    return shifted


def _mask(sequences: Sequence[TokenIds], length: int) -> npt.NDArray[np.int64]:
    """From the lengths, not from the ids: a pad id may also be a real token."""
    lengths = np.array([len(sequence) for sequence in sequences])
    return (np.arange(length)[None, :] < lengths[:, None]).astype(np.int64)
