"""One micro-batch as tensors, packed or padded, with what it cost: the joint between rows and a model's forward.

Shapes: B examples, S source, T target, N packed source tokens, M packed target tokens.

    sources [5 6 1], [7 1]; targets [8 1], [9 3 1]; pad 0, decoder start 0
    padded   source_ids  5 6 1 | 7 1 0    source_mask  1 1 1 | 1 1 0
             decoder_ids 0 8 1 | 0 9 3    labels       8 1 -100 | 9 3 1
    packed   source_ids  5 6 1 7 1        source_lengths 3 2
             decoder_ids 0 8 0 9 3        labels 8 1 9 3 1    target_lengths 2 3
    where the last label comes first, decoder_ids are 1 8 | 1 9 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from seqfit.tasks import Label

IGNORED_LABEL = -100  # torch's cross-entropy leaves these labels out
TokenIds = npt.NDArray[np.integer]


@dataclass(frozen=True)
class MicroBatch:
    """Tensors of one forward, and the counts that need no look at the device."""

    source_ids: torch.Tensor  # [B, S], packed [1, N]
    source_mask: torch.Tensor | None  # [B, S]; None where nothing is padded
    decoder_ids: torch.Tensor | None  # [B, T], packed [1, M]; None for a classifier
    labels: torch.Tensor  # [B, T], packed [1, M]; of a classifier [B], or [B, C] where any of C labels may apply
    examples: int
    source_tokens: int  # real ones
    target_tokens: int
    padded_tokens: int  # what padding added
    source_lengths: tuple[int, ...] | None = None  # of the examples in a packed row
    target_lengths: tuple[int, ...] | None = None
    counts: bool = True  # False: it only keeps a rank with too few of them in step with the others

    @property
    def tokens(self) -> int:
        """As they lie in memory, with padding."""
        return self.source_tokens + self.target_tokens + self.padded_tokens

    def to(self, device: torch.device) -> MicroBatch:
        """The tensors on a device."""
        if device.type == "cpu":
            return self
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True)
            for name, value in vars(self).items()
            if isinstance(value, torch.Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Padding:
    """The ids that fill a batch."""

    pad_id: int
    decoder_start_id: int | None = None  # None for a classifier
    starts_with_last_label: bool = False  # mBART, PLBart: instead, the decoder reads the target's last token first


def collate_sequences(
    sources: Sequence[TokenIds], targets: Sequence[TokenIds], padding: Padding, shape: tuple[int, int]
) -> MicroBatch:
    """Text-to-text: sources and targets padded to `shape` (source, target)."""
    assert padding.decoder_start_id is not None
    source_ids = _fill(sources, shape[0], padding.pad_id)
    labels = _fill(targets, shape[1], IGNORED_LABEL)
    decoder_ids = np.full_like(labels, padding.pad_id)
    decoder_ids[:, 0] = _starts(targets, padding)
    decoder_ids[:, 1:] = np.where(labels[:, :-1] == IGNORED_LABEL, padding.pad_id, labels[:, :-1])
    source_tokens, target_tokens = sum(map(len, sources)), sum(map(len, targets))
    return MicroBatch(
        source_ids=torch.from_numpy(source_ids),
        source_mask=torch.from_numpy(_mask(sources, shape[0])),
        decoder_ids=torch.from_numpy(decoder_ids),
        labels=torch.from_numpy(labels),
        examples=len(sources),
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        padded_tokens=source_ids.size + labels.size - source_tokens - target_tokens,
    )


def collate_labels(sources: Sequence[TokenIds], labels: Sequence[Label], padding: Padding, length: int) -> MicroBatch:
    """Classifier: sources padded to a length, one label each."""
    source_ids = _fill(sources, length, padding.pad_id)
    source_tokens = sum(map(len, sources))
    return MicroBatch(
        source_ids=torch.from_numpy(source_ids),
        source_mask=torch.from_numpy(_mask(sources, length)),
        decoder_ids=None,
        labels=stack_labels(labels),
        examples=len(sources),
        source_tokens=source_tokens,
        target_tokens=0,
        padded_tokens=source_ids.size - source_tokens,
    )


def pack_sequences(sources: Sequence[TokenIds], targets: Sequence[TokenIds], padding: Padding) -> MicroBatch:
    """Text-to-text: all sources in one row, all targets in another."""
    assert padding.decoder_start_id is not None
    labels = np.concatenate(targets).astype(np.int64)
    decoder_ids = np.empty_like(labels)
    decoder_ids[1:] = labels[:-1]
    lengths = tuple(map(len, targets))
    decoder_ids[np.cumsum((0, *lengths[:-1]))] = _starts(targets, padding)
    return MicroBatch(
        source_ids=_row(np.concatenate(sources)),
        source_mask=None,
        decoder_ids=_row(decoder_ids),
        labels=_row(labels),
        examples=len(sources),
        source_tokens=sum(map(len, sources)),
        target_tokens=len(labels),
        padded_tokens=0,
        source_lengths=tuple(map(len, sources)),
        target_lengths=lengths,
    )


def pack_labels(sources: Sequence[TokenIds], labels: Sequence[Label]) -> MicroBatch:
    """Classifier: all sources in one row, one label each."""
    return MicroBatch(
        source_ids=_row(np.concatenate(sources)),
        source_mask=None,
        decoder_ids=None,
        labels=stack_labels(labels),
        examples=len(sources),
        source_tokens=sum(map(len, sources)),
        target_tokens=0,
        padded_tokens=0,
        source_lengths=tuple(map(len, sources)),
    )


def stack_labels(labels: Sequence[Label]) -> torch.Tensor:
    """As a head's loss takes them: classes [B] of int64, scores [B] or labels that apply [B, C] of fp32."""
    return torch.tensor(labels, dtype=torch.int64 if isinstance(labels[0], int) else torch.float32)


def _starts(targets: Sequence[TokenIds], padding: Padding) -> list[int]:
    """What the decoder reads first, for each target; a target without tokens has no last one."""
    assert padding.decoder_start_id is not None
    start = padding.decoder_start_id
    if not padding.starts_with_last_label:
        return [start] * len(targets)
    return [int(target[-1]) if len(target) else start for target in targets]


def _row(ids: TokenIds) -> torch.Tensor:
    return torch.from_numpy(ids.astype(np.int64))[None]


def _fill(sequences: Sequence[TokenIds], length: int, filler: int) -> npt.NDArray[np.int64]:
    filled = np.full((len(sequences), length), filler, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        filled[row, : len(sequence)] = sequence
    return filled


def _mask(sequences: Sequence[TokenIds], length: int) -> npt.NDArray[np.int64]:
    """From the lengths, not from the ids: a pad id may also be a real token."""
    lengths = np.array([len(sequence) for sequence in sequences])
    return (np.arange(length)[None, :] < lengths[:, None]).astype(np.int64)
