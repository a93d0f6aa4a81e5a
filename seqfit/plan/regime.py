"""Which path a micro-batch takes through the model: only shapes of one path have sizes that one polynomial gives.

In: a shape. Out: its `Regime`, by the very rules that the model itself goes by, and shapes of the same regime to trace.

    CPU, attention=auto     sources 200, targets 22 and 28     encoder in whole segments, decoder by torch's kernel
                            sources 200, targets 22 and 34     encoder and decoder in whole segments
                            sources 600, targets 22 and 34     encoder in blocks of queries, decoder in whole segments

A path differs in what is kept for the backward, not only in how much of it. The chunks of the loss are no path but a
loop, whose buffer has `count_loss_rows` rows (`template` knows).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from math import ceil, isclose

from seqfit.model.linear_loss import CHUNK_BYTES, count_chunk_rows
from seqfit.model.segments import count_block_rows, is_blockwise
from seqfit.plan.shape import Shape

_FP32_BYTES = 4
KERNEL, WHOLE, BLOCKS = "torch's kernel", "whole segments", "blocks of queries"


@dataclass(frozen=True)
class Paths:
    """What decides over the path besides the shape."""

    blockwise_above: int  # tokens of a segment
    chunked_words: int | None = None  # the vocabulary, where the loss goes through it in chunks of rows


@dataclass(frozen=True)
class Regime:
    """The path of a micro-batch. Padded ones have no segments."""

    packed: bool
    is_one: bool  # a single example, for which torch has shortcuts: nothing needs to be copied to be in a row
    encoder: str | None
    decoder: str | None
    cross: str | None


def find_regime(shape: Shape, paths: Paths) -> Regime:
    """The path that this shape takes."""
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
    """Rows of logits that are there at once; 0 for a classifier, or where all are."""
    if shape.targets is None or paths.chunked_words is None:
        return 0
    rows = sum(shape.targets) if shape.packed else shape.examples * max(shape.targets)
    return count_chunk_rows(rows, paths.chunked_words * _FP32_BYTES, CHUNK_BYTES)


def choose_traced(shape: Shape, paths: Paths) -> list[Shape]:
    """Two small shapes of the same regime: its longest examples; and these with the shortest, all a little shorter or
    longer, so that the shapes differ in everything that sizes depend on. One, where there is no second."""
    few = min(shape.examples, 2)
    by_source = sorted(range(shape.examples), key=lambda row: -shape.sources[row])
    rows = by_source
    if shape.targets is not None:
        targets = shape.targets
        rows = list(dict.fromkeys([by_source[0], max(by_source, key=lambda row: targets[row]), *by_source[1:]]))
    small = _take(shape, rows[:few])
    more = _take(shape, rows[:few] if few == 1 else [*rows[:few], rows[-1]])
    others = [_stretch(more, *shares) for shares in product(_SHARES, _SHARES)]
    others = [other for other in others if find_regime(other, paths) == find_regime(shape, paths)]
    if others:
        return [small, min(others, key=lambda other: _count_alike(small, other))]
    return [small] if more == small else [small, more]


_SHARES = (0.75, 0.9, 0.97, 1.03, 1.1, 1.6, 2.2)  # of a length; several, because a threshold may be near


def _count_alike(small: Shape, other: Shape) -> int:
    """Pairs of measures that have changed by the same factor, so that no fit could tell one from the other.

    Two examples of 9 tokens and three of 6 have 18 each: what grows with the tokens would seem to stay as it is.
    """
    factors = [after / before for before, after in zip(_measure(small), _measure(other), strict=True)]
    return sum(isclose(one, two) for one, two in combinations(factors, 2))


def _measure(shape: Shape) -> list[float]:
    """Nothing that varies, examples, and of sources and targets the longest, all as long as it, and all tokens."""
    measures: list[float] = [1.0, shape.examples]
    for lengths in (shape.sources, shape.targets or ()):
        if lengths:
            measures += [max(lengths), len(lengths) * max(lengths), *([sum(lengths)] if shape.packed else [])]
    return measures


def _take(shape: Shape, rows: list[int]) -> Shape:
    targets = None if shape.targets is None else tuple(shape.targets[row] for row in rows)
    return Shape(tuple(shape.sources[row] for row in rows), targets, shape.packed)


def _stretch(shape: Shape, source_share: float, target_share: float) -> Shape:
    targets = None if shape.targets is None else tuple(_scale(length, target_share) for length in shape.targets)
    return Shape(tuple(_scale(length, source_share) for length in shape.sources), targets, shape.packed)


def _scale(length: int, share: float) -> int:
    """Another length, by a token at least, and never 1, for which torch has shortcuts: 1 becomes 2, and 2 becomes 3."""
    scaled = int(length * share) if share < 1 else ceil(length * share)
    return scaled if scaled > 1 else length + 1
