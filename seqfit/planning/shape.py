"""Shapes of micro-batches: what a run feeds its model, and which path each shape takes through it.

A `Shape` is the lengths of a micro-batch's sources and targets, packed or padded; `build_batch` makes a global batch of
zeros with the tensors that a step would get, `draw_batch` one of random tokens for a real step:

    sources 3 and 5, targets 2 and 1, packed      8 source tokens and 3 target tokens in one row each
    the same padded                               [2, 5] and [2, 2]

Its `Regime` is the path that it takes through the model, by the model's own rules: only shapes of one regime have sizes
that one polynomial gives.

    CPU, attention=auto     sources 200, targets 22 and 28     encoder in whole segments, decoder by torch's kernel
                            sources 200, targets 22 and 34     encoder and decoder in whole segments
                            sources 600, targets 22 and 34     encoder in blocks of queries, decoder in whole segments

Paths differ in what is saved for the backward, not only in how much of it. The chunks of the loss are not a path but a
loop, whose buffer has `count_loss_rows` rows (see `template`).

A `Workload` is what a run feeds its model: the lengths of a training split, or assumed ones, in the batches that its
recipe makes of them, which a strategy's rule splits into micro-batches:

    steps [[0, 1], [2, 3]] of lengths 7 3 | 4 4, at most 8 tokens        (7) (3)   (4 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import ceil, isclose

import numpy as np
import numpy.typing as npt
import torch

from seqfit.data import GlobalBatch, MicroBatch, MicroBatchRule, Padding
from seqfit.errors import PlanError
from seqfit.kernels import CHUNK_BYTES, count_block_rows, count_chunk_rows, is_blockwise
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
                f"a micro-batch has {len(self.sources)} examples with lengths {lengths[:6]}",
                "a plan needs at least one example, and each at least one token",
                "Give lengths of 1 or more, such as --source-tokens 512 --target-tokens 64",
            )

    @property
    def examples(self) -> int:
        return len(self.sources)

    @property
    def real_tokens(self) -> int:
        return sum(self.sources) + sum(self.targets or ())


def uniform(examples: int, source_tokens: int, target_tokens: int | None, *, packed: bool) -> Shape:
    targets = None if target_tokens is None else (target_tokens,) * examples
    return Shape((source_tokens,) * examples, targets, packed)


def build_batch(shapes: Sequence[Shape], label: Label = 0) -> GlobalBatch:
    """A global batch of these micro-batches; `label` is that of every example where there are no targets. Inside a
    FakeTensorMode its tensors are fake."""
    return _join_micro_batches([_build_micro_batch(shape, label) for shape in shapes])


def draw_batch(shapes: Sequence[Shape], label: Label = 0) -> GlobalBatch:
    """The same of random tokens, packed or padded by the code that training uses. Padded batches have real padding,
    because masks of ones take another path through transformers."""

    def draw(lengths: Sequence[int]) -> list[npt.NDArray[np.int64]]:
        random = np.random.default_rng(0)
        return [random.integers(3, 99, length) for length in lengths]  # ids of every vocabulary, after padding and end

    return _join_micro_batches(
        [
            MicroBatch.collate(
                draw(shape.sources),
                draw(shape.targets or ()),
                Padding(pad_id=0, decoder_start_id=0),
                labels=[label] * shape.examples if shape.targets is None else None,
                shape=None if shape.packed else (max(shape.sources), max(shape.targets or (0,))),
            )
            for shape in shapes
        ]
    )


def _join_micro_batches(micro_batches: list[MicroBatch]) -> GlobalBatch:
    """The global batch of a step outside of a run: it has no rows and no position in an epoch."""
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
    decoder_ids, longest = None, max(shape.sources) + max(shape.targets or (0,))
    if shape.targets is None:
        labels = MicroBatch.stack_labels([label] * shape.examples)
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
        padded_tokens=0 if shape.packed else shape.examples * longest - shape.real_tokens,
        source_lengths=shape.sources if shape.packed else None,
        target_lengths=shape.targets if shape.packed else None,
    )


_FP32_BYTES = 4
KERNEL, WHOLE, BLOCKS = "torch's kernel", "whole segments", "blocks of queries"


@dataclass(frozen=True)
class Paths:
    """What decides the path besides the shape."""

    blockwise_above: int  # tokens of a segment
    chunked_vocabulary: int | None = None  # its size, where the loss is computed in chunks of rows


@dataclass(frozen=True)
class Regime:
    """The path of a micro-batch. Padded ones have no segments."""

    packed: bool
    is_one: bool  # a single example, for which torch has shortcuts: nothing needs to be copied to be contiguous
    encoder: str | None
    decoder: str | None
    cross: str | None


def find_regime(shape: Shape, paths: Paths) -> Regime:
    if not shape.packed:
        return Regime(packed=False, is_one=shape.examples == 1, encoder=None, decoder=None, cross=None)
    source, target = max(shape.sources), None if shape.targets is None else max(shape.targets)

    def find_attention(queries: int, keys: int) -> str:
        if not is_blockwise(queries, keys, paths.blockwise_above):
            return KERNEL
        return WHOLE if count_block_rows(queries) == queries else BLOCKS

    return Regime(
        packed=True,
        is_one=shape.examples == 1,
        encoder=find_attention(source, source),
        decoder=None if target is None else find_attention(target, target),
        cross=None if target is None else find_attention(target, source),
    )


def count_loss_rows(shape: Shape, paths: Paths) -> int:
    """Rows of logits that exist at once; 0 for a classifier, or where all do."""
    if shape.targets is None or paths.chunked_vocabulary is None:
        return 0
    rows = sum(shape.targets) if shape.packed else shape.examples * max(shape.targets)
    return count_chunk_rows(rows, paths.chunked_vocabulary * _FP32_BYTES, CHUNK_BYTES)


def choose_traced(shape: Shape, paths: Paths) -> list[Shape]:
    """Two small shapes of the same regime: its longest examples; and these with the shortest, all slightly shorter or
    longer, so that the shapes differ in everything that sizes depend on. One, where there is no second."""
    few = min(shape.examples, 2)
    by_source = sorted(range(shape.examples), key=lambda row: -shape.sources[row])
    rows = by_source
    if shape.targets is not None:
        targets = shape.targets
        rows = list(dict.fromkeys([by_source[0], max(by_source, key=lambda row: targets[row]), *by_source[1:]]))
    small = _take(shape, rows[:few])
    more = _take(shape, rows[:few] if few == 1 else [*rows[:few], rows[-1]])
    others = [_scale_lengths(more, *how) for how in product(_SHARES, _SHARES, (True, False))]
    others = [other for other in others if find_regime(other, paths) == find_regime(shape, paths)]
    if others:
        return [small, min(others, key=lambda other: (_count_alike(small, other), not _is_padded_alike(small, other)))]
    return [small] if more == small else [small, more]


ALIGNMENT = 8  # tokens
_SHARES = (0.75, 0.9, 0.97, 1.03, 1.1, 1.6, 2.2, 3.0, 4.0)  # of a length; several, because a threshold may be near


def _count_alike(small: Shape, other: Shape) -> int:
    """Pairs of measures that have changed by the same factor, so that no fit could distinguish them.

    Two examples of 9 tokens and three of 6 have 18 each: what grows with the tokens would seem constant.
    """
    factors = [after / before for before, after in zip(_measure(small), _measure(other), strict=True)]
    return sum(isclose(one, two) for one, two in combinations(factors, 2))


def _is_padded_alike(small: Shape, other: Shape) -> bool:
    """torch's kernel pads the bias of keys to a multiple of 8."""
    pairs = zip(_measure(small)[2:], _measure(other)[2:], strict=True)
    return all((one % ALIGNMENT == 0) == (two % ALIGNMENT == 0) for one, two in pairs)


def _measure(shape: Shape) -> list[float]:
    """A constant, examples, and of sources and targets the longest, all padded to it, and all tokens."""
    measures: list[float] = [1.0, shape.examples]
    for lengths in (shape.sources, shape.targets or ()):
        if lengths:
            measures += [max(lengths), len(lengths) * max(lengths), *([sum(lengths)] if shape.packed else [])]
    return measures


def _take(shape: Shape, rows: list[int]) -> Shape:
    targets = None if shape.targets is None else tuple(shape.targets[row] for row in rows)
    return Shape(tuple(shape.sources[row] for row in rows), targets, shape.packed)


def _scale_lengths(shape: Shape, source_share: float, target_share: float, is_aligned: bool) -> Shape:
    scale = _scale_aligned if is_aligned else _scale
    targets = None if shape.targets is None else tuple(scale(length, target_share) for length in shape.targets)
    return Shape(tuple(scale(length, source_share) for length in shape.sources), targets, shape.packed)


def _scale(length: int, share: float) -> int:
    """Another length, by at least a token, and never 1, for which torch has shortcuts: 1 becomes 2, and 2 becomes 3."""
    scaled = int(length * share) if share < 1 else ceil(length * share)
    return scaled if scaled > 1 else length + 1


def _scale_aligned(length: int, share: float) -> int:
    """A multiple of 8 stays one, and another length none."""
    scaled = _scale(length, share)
    if length % ALIGNMENT == 0:
        return max(ALIGNMENT, round(scaled / ALIGNMENT) * ALIGNMENT)
    return scaled + (scaled % ALIGNMENT == 0)


Lengths = npt.NDArray[np.int32]
_SAMPLED_STEPS = 48  # whose mean is the step time; all steps are looked at for the largest micro-batch


@dataclass(frozen=True)
class Workload:
    """Lengths of the examples, and which of them make a step. A classifier's targets have length 0."""

    source_lengths: Lengths
    target_lengths: Lengths
    steps: tuple[npt.NDArray[np.int64], ...]  # rows of each global batch of the first epoch
    is_classifier: bool
    total_steps: int

    def split(self, rule: MicroBatchRule, steps: Sequence[npt.NDArray[np.int64]]) -> list[list[Shape]]:
        return [
            [self._shape(rows, rule) for rows in rule.split(step, self.source_lengths, self.target_lengths)]
            for step in steps
        ]

    def sample(self) -> list[npt.NDArray[np.int64]]:
        """Steps spread over the epoch, and those with the most tokens and the longest example."""
        every = max(1, len(self.steps) // _SAMPLED_STEPS)
        return [*self.steps[::every][:_SAMPLED_STEPS], *self.largest()]

    def largest(self) -> list[npt.NDArray[np.int64]]:
        lengths = self.source_lengths + self.target_lengths
        by_tokens = max(self.steps, key=lambda rows: int(lengths[rows].sum()))
        by_longest = max(self.steps, key=lambda rows: int(lengths[rows].max()))
        return [by_tokens] if by_tokens is by_longest else [by_tokens, by_longest]

    def with_longest(self, source_tokens: int | None, target_tokens: int | None) -> Workload:
        """As if the longest texts had so many tokens: longer ones are truncated, and the longest becomes so long."""
        sources = _with_longest(self.source_lengths, source_tokens)
        targets = self.target_lengths if self.is_classifier else _with_longest(self.target_lengths, target_tokens)
        return replace(self, source_lengths=sources, target_lengths=targets)

    def real_tokens(self, steps: Sequence[npt.NDArray[np.int64]]) -> int:
        return int(sum((self.source_lengths[rows] + self.target_lengths[rows]).sum() for rows in steps))

    def _shape(self, rows: npt.NDArray[np.int64], rule: MicroBatchRule) -> Shape:
        sources, targets = self.source_lengths[rows], self.target_lengths[rows]
        if rule.batching == "packed":
            return Shape(tuple(sources.tolist()), None if self.is_classifier else tuple(targets.tolist()), packed=True)
        source, target = rule.padded_shape(int(sources.max()), int(targets.max()))
        return Shape((source,) * len(rows), None if self.is_classifier else (target,) * len(rows), packed=False)


def _with_longest(lengths: Lengths, longest: int | None) -> Lengths:
    if longest is None:
        return lengths
    if longest < 1:
        raise PlanError(
            f"the longest text is assumed to have {longest} tokens",
            "a text has at least one token",
            "Give a length of 1 or more, such as --what-if max_source_tokens=512",
        )
    changed = np.minimum(lengths, longest)
    changed[int(lengths.argmax())] = longest
    return changed


def assume_workload(
    examples: int, source_tokens: int, target_tokens: int, *, is_classifier: bool = False, total_steps: int = 1
) -> Workload:
    """All examples alike, for a plan without data."""
    if min(examples, source_tokens) < 1 or (target_tokens < 1 and not is_classifier):
        raise PlanError(
            f"{examples} examples of {source_tokens} source and {target_tokens} target tokens are assumed",
            "a batch has at least one example, and each text at least one token",
            "Give lengths of 1 or more, such as --source-tokens 512 --target-tokens 64",
        )
    targets = np.full(examples, 0 if is_classifier else target_tokens, dtype=np.int32)
    sources = np.full(examples, source_tokens, dtype=np.int32)
    return Workload(sources, targets, (np.arange(examples),), is_classifier, total_steps)
