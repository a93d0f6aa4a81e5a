"""The shape of a micro-batch: how long its sources and targets are, and whether they are packed or padded.

In: lengths. Out: a `Shape`, and a global batch of zeros that has the tensors a step would get:

    sources 3 and 5, targets 2 and 1, packed      8 source tokens and 3 target tokens in one row each
    the same padded                               [2, 5] and [2, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqfit.data.loader import GlobalBatch
from seqfit.data.micro_batch import MicroBatch, stack_labels
from seqfit.errors import PlanError, complain
from seqfit.tasks import Label


@dataclass(frozen=True)
class Shape:
    """Lengths in tokens. A classifier has no targets."""

    sources: tuple[int, ...]
    targets: tuple[int, ...] | None
    packed: bool

    def __post_init__(self) -> None:
        lengths = [*self.sources, *(self.targets or ())]
        if not lengths or min(lengths) < 1:
            raise PlanError(
                complain(
                    f"a micro-batch of {len(self.sources)} examples with lengths {lengths[:6]} is asked for",
                    "a plan needs at least one example, and each at least one token",
                    "Give lengths from 1 on, such as --source-tokens 512 --target-tokens 64",
                )
            )

    @property
    def examples(self) -> int:
        """In the micro-batch."""
        return len(self.sources)

    @property
    def real_tokens(self) -> int:
        """Source and target, without padding."""
        return sum(self.sources) + sum(self.targets or ())


def uniform(examples: int, source_tokens: int, target_tokens: int | None, *, packed: bool) -> Shape:
    """All examples alike."""
    targets = None if target_tokens is None else (target_tokens,) * examples
    return Shape((source_tokens,) * examples, targets, packed)


def build_batch(shapes: Sequence[Shape], label: Label = 0) -> GlobalBatch:
    """A global batch cut into these micro-batches, `label` being that of every example where there are no targets.
    Inside fake execution its rows are fake."""
    return join_micro_batches([_build_micro_batch(shape, label) for shape in shapes])


def join_micro_batches(micro_batches: list[MicroBatch]) -> GlobalBatch:
    """The global batch of a step that belongs to no run: it has no rows and no place in an epoch."""
    return GlobalBatch(
        rows=np.empty(0, dtype=np.int64),
        micro_batches=micro_batches,
        epoch=0.0,
        examples=sum(batch.examples for batch in micro_batches),
        source_tokens=sum(batch.source_tokens for batch in micro_batches),
        target_tokens=sum(batch.target_tokens for batch in micro_batches),
        padded_tokens=sum(batch.padded_tokens for batch in micro_batches),
    )


def _build_micro_batch(shape: Shape, label: Label) -> MicroBatch:
    source_tokens, target_tokens = sum(shape.sources), sum(shape.targets or ())
    size = (1, source_tokens) if shape.packed else (shape.examples, max(shape.sources))
    decoder_ids = None
    if shape.targets is None:
        labels = stack_labels([label] * shape.examples)
    else:
        target_size = (1, target_tokens) if shape.packed else (shape.examples, max(shape.targets))
        decoder_ids = torch.zeros(target_size, dtype=torch.int64)
        labels = torch.zeros(target_size, dtype=torch.int64)
    return MicroBatch(
        source_ids=torch.zeros(size, dtype=torch.int64),
        source_mask=None if shape.packed else torch.ones(size, dtype=torch.int64),
        decoder_ids=decoder_ids,
        labels=labels,
        examples=shape.examples,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        padded_tokens=0 if shape.packed else _padded_tokens(shape),
        source_lengths=shape.sources if shape.packed else None,
        target_lengths=shape.targets if shape.packed else None,
    )


def _padded_tokens(shape: Shape) -> int:
    longest = max(shape.sources) + max(shape.targets or (0,))
    return shape.examples * longest - shape.real_tokens
