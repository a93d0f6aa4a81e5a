"""A step's memory and kernels as polynomials of the micro-batch's shape, so that any shape costs a millisecond.

In: a few shapes of one regime, traced. Out: a `Template` that gives the tape of any other shape of that regime.

    block 7 at 2 x 100, 2 x 200, 4 x 100 tokens     800, 1600, 1600 bytes     ->   4 * (tokens of all examples)

A step does the same things for all shapes of a regime, except in loops: attention goes through segments and blocks of
queries, a chunked loss through chunks. What is allocated and freed inside one span (between two marks of the recorder)
is therefore one block of the span's own peak, and the sequence of the rest is the same. The chunks' buffer grows with
the rows of a chunk, not with all rows: it is a term of its own.

AdamW with 8-bit moments is a rule on top (`shrink_template`): the template of plain AdamW with a smaller state. The
packages that implement it (bitsandbytes, torchao) are not traced, because a plan must not need them:

    weights      AdamW keeps          8 bits keep
    4,096 on     2 x 4 bytes each     2 x 1 byte each, and 2 x 4 bytes for each block of 256
    fewer        2 x 4 bytes each     the same: small tensors stay as they are

Time stays the same: the cost of unpacking has not been measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from seqfit.kernels import count_block_rows
from seqfit.planning.shape import Paths, Shape, count_loss_rows
from seqfit.planning.tape import KINDS, LOSS, STATE, TEMPORARIES, KernelCost, MemoryBlock, Tape

_Matrix = npt.NDArray[np.float64]
_EXACT = 1e-6
_SCALE_BLOCK, _SCALE_BYTES = 256, 4  # weights that share a scale in 8 bits, and its size
_LEAST_WEIGHTS = 4096  # bitsandbytes' default of min_8bit_size
PASSING = "passing"  # the kernel of a block that stands for many


def terms(shape: Shape) -> list[float]:
    """What sizes are sums of, the likeliest first: a constant, tokens, examples, the products that scores are made of,
    the longest text, and what is padded to it."""
    sources = np.array(shape.sources, dtype=np.float64)
    targets = np.array(shape.targets or [0] * len(sources), dtype=np.float64)
    if not shape.packed:
        sources, targets = np.full_like(sources, sources.max()), np.full_like(targets, targets.max())
    n, s, t = len(sources), sources.max(), targets.max()
    sums = [sources.sum(), targets.sum(), n, (sources**2).sum(), (sources * targets).sum(), (targets**2).sum()]
    padded = [n * s, n * t, n * s * s, n * s * t, n * t * t]
    return [1.0, sums[0] + sums[1], *sums, s, t, s * s, s * t, t * t, _band(int(s)), _band(int(t)), *padded]


_SUMS, _LONGEST = range(1, 8), range(8, 15)  # where they are among the terms
_LOOP_PAIRS = [pair for among in (_LONGEST, range(20)) for pair in combinations(among, 2)]
_PAIRS = [pair for among in (_SUMS, range(20)) for pair in combinations(among, 2)]


def _band(longest: int) -> float:
    """Of a bias or a mask by distance, as blockwise attention keeps it: queries of a block x distances they have."""
    rows = count_block_rows(max(longest, 1))
    return float(rows * (2 * -(-longest // rows) * rows - rows))


class DifferentPaths(Exception):
    """Shapes that should be of one regime run different operations: no template fits them all."""


@dataclass(frozen=True)
class Template:
    tape: Tape  # of one of the shapes; collapsed where they differ in more than sizes
    paths: Paths
    block_bytes: _Matrix  # [block, term], and behind the terms the rows of a chunk of the loss
    kernel_flops: _Matrix  # [kernel, term]
    kernel_bytes: _Matrix
    kernel_calls: _Matrix

    def at(self, shape: Shape) -> Tape:
        sizes = np.rint(self.sizes(shape)).astype(np.int64)
        blocks = [  # hundreds of thousands in a plan: `replace` takes four times as long
            MemoryBlock(size, block.category, block.place, block.kernel, block.shape, block.layer, block.shares)
            for block, size in zip(self.tape.blocks, sizes.tolist(), strict=True)
        ]
        return replace(self.tape, blocks=blocks)

    def values(self, shape: Shape) -> _Matrix:
        return np.array([*terms(shape), count_loss_rows(shape, self.paths)])

    def sizes(self, shape: Shape) -> _Matrix:
        sizes: _Matrix = np.maximum(self.block_bytes @ self.values(shape), 0)
        return sizes


def fit_template(shapes: Sequence[Shape], tapes: Sequence[Tape], paths: Paths = Paths(0)) -> Template:  # noqa: B008
    if len({_signature(tape) for tape in tapes}) > 1:
        tapes = [collapse(tape) for tape in tapes]
    if len({_signature(tape) for tape in tapes}) > 1:
        raise DifferentPaths(f"{len(shapes)} shapes such as {shapes[0]} differ in more than sizes")
    solve = _Solver(shapes)
    block_bytes = solve(
        np.array([[block.bytes for block in tape.blocks] for tape in tapes], dtype=np.float64),
        in_loop=[block.kernel == PASSING for block in tapes[0].blocks],
    )
    rows = [count_loss_rows(shape, paths) for shape in shapes]
    expected = [(count, paths.chunked_vocabulary) for count in rows]
    for number, blocks in enumerate(zip(*(tape.blocks for tape in tapes), strict=True)):
        # The buffer of the loss, and what is as long: so many bytes for each row of a chunk.
        if all(rows) and [block.shape for block in blocks] == expected and blocks[0].category in (LOSS, TEMPORARIES):
            block_bytes[number] = 0
            block_bytes[number, -1] = np.mean([block.bytes / count for block, count in zip(blocks, rows, strict=True)])
    kernels = [np.array([[k.flops, k.calls] for k in tape.kernels], dtype=np.float64) for tape in tapes]
    return Template(
        tape=tapes[0],
        paths=paths,
        block_bytes=block_bytes,
        kernel_flops=solve(np.array([values[:, 0] for values in kernels])),
        kernel_bytes=_fit_bytes(tapes, solve),
        kernel_calls=solve(np.array([values[:, 1] for values in kernels])),
    )


def _fit_bytes(tapes: Sequence[Tape], solve: _Solver) -> _Matrix:
    """[kernel, term]: the sum over the tensors that a kernel reads and writes, because each of them is one term.

    From two shapes, the sum of a weight and an activation could as well be two activations, and would grow too fast.
    """
    pieces = [[kernel.tensors or (kernel.bytes,) for kernel in tape.kernels] for tape in tapes]
    counts = [[*map(len, each)] for each in pieces]
    if counts.count(counts[0]) < len(counts):
        return solve(np.array([[kernel.bytes for kernel in tape.kernels] for tape in tapes], dtype=np.float64))
    if not counts[0]:
        return solve(np.zeros((len(tapes), 0)))
    solved = solve(np.array([[size for sizes in each for size in sizes] for each in pieces], dtype=np.float64))
    starts = np.cumsum([0, *counts[0][:-1]])
    summed: _Matrix = np.add.reduceat(solved, starts, axis=0)
    return summed


def collapse(tape: Tape) -> Tape:
    """With one block for all that is allocated and freed within a span, and one kernel of each kind and type in it."""
    collapsed = Tape()
    kept: dict[int, int] = {}
    kernels: dict[int, list[KernelCost]] = {}
    for kernel in tape.kernels:
        kernels.setdefault(kernel.span, []).append(kernel)
    for number, (span, events) in enumerate(tape.span_events()):
        collapsed.mark(span.phase, span.name, span.layer, span.place)
        if span.first_event in tape.parts:
            collapsed.parts.append(len(collapsed.events))
        if span.first_event == tape.update_from:
            collapsed.update_from = len(collapsed.events)
        passing = {event for event in events if event >= 0} & {~event for event in events if event < 0}
        passing_bytes = _peak_of(tape, events, passing)
        # The passing blocks' peak comes after all lasting allocations: at most a slight overestimate.
        for event in events:
            if event >= 0 and event not in passing:
                kept[event] = collapsed.allocate(tape.blocks[event])
        largest = max((tape.blocks[event] for event in passing), key=lambda block: block.bytes, default=None)
        shape = () if largest is None else largest.shape
        collapsed.free(collapsed.allocate(MemoryBlock(passing_bytes, TEMPORARIES, span.name, PASSING, shape)))
        for event in events:
            if event < 0 and ~event not in passing:
                collapsed.free(kept[~event])
        collapsed.kernels.extend(_sum_kernels(kernels.get(number, []), len(collapsed.spans) - 1))
    return collapsed


def _peak_of(tape: Tape, events: list[int], passing: set[int]) -> int:
    live = peak = 0
    for event in events:
        if event in passing:
            live += tape.blocks[event].bytes
            peak = max(peak, live)
        elif ~event in passing:
            live -= tape.blocks[~event].bytes
    return peak


def _sum_kernels(kernels: list[KernelCost], span: int) -> list[KernelCost]:
    """One entry for each kind of kernel, also where there is none, so that shapes can be compared."""
    sums = {kind: [0, 0, 0] for kind in KINDS}
    for kernel in kernels:
        total = sums[kernel.kind]
        total[0] += kernel.flops
        total[1] += kernel.bytes
        total[2] += kernel.calls
    return [
        KernelCost(kind, span, "bfloat16" if kind.startswith("half") else "float32", flops, moved_bytes, calls)
        for kind, (flops, moved_bytes, calls) in sums.items()
    ]


def shrink_template(template: Template) -> Template:
    """With 8-bit state, which does not depend on the micro-batch: its polynomials are constants."""
    shares = np.array([_state_bytes(block) / max(block.bytes, 1) for block in template.tape.blocks])
    shares[[block.category != STATE for block in template.tape.blocks]] = 1.0
    block_bytes = template.block_bytes * shares[:, None]
    return replace(template, tape=shrink_tape(template.tape), block_bytes=block_bytes)


def shrink_tape(tape: Tape) -> Tape:
    return replace(tape, blocks=[replace(block, bytes=_state_bytes(block)) for block in tape.blocks])


def _state_bytes(block: MemoryBlock) -> int:
    weights = math.prod(block.shape)
    if block.category != STATE or weights < _LEAST_WEIGHTS:
        return block.bytes
    return weights + -(-weights // _SCALE_BLOCK) * _SCALE_BYTES


def _signature(tape: Tape) -> tuple[object, ...]:
    return tuple(tape.events), tuple(kernel.name for kernel in tape.kernels)


class _Solver:
    """Coefficients of the terms: of one term where that explains an item at all shapes, else of two, else of many.

    A block has the size of one product of dimensions, so at shapes that differ in all of them only one term fits. What
    is allocated and freed in a loop is a sum of a few: of the longest segment first. The rest is fitted by least
    squares with the smallest coefficients.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._rows = np.array([terms(shape) for shape in shapes])
        self._scale = np.abs(self._rows).max(0)
        self._scale[self._scale == 0] = 1.0
        self._inverse = np.linalg.pinv(self._rows / self._scale, rcond=1e-9)

    def __call__(self, values: _Matrix, *, in_loop: Sequence[bool] = ()) -> _Matrix:
        """[item, term] from [shape, item]; no item depends on the rows of a chunk. `in_loop`: freed in their span."""
        loops = np.array(in_loop if len(in_loop) else [False] * values.shape[1], dtype=np.float64)
        items: dict[bytes, int] = {}  # most are alike, as layers are
        places = [items.setdefault(item.tobytes(), len(items)) for item in np.vstack([values, loops]).T.copy()]
        coefficients = np.zeros((len(items), self._rows.shape[1] + 1))
        for key, number in items.items():
            *item, is_loop = np.frombuffer(key).tolist()
            coefficients[number, :-1] = self._find(np.array(item), _LOOP_PAIRS if is_loop else _PAIRS)
        found: _Matrix = coefficients[places]
        return found

    def _find(self, item: _Matrix, pairs: Sequence[tuple[int, int]]) -> _Matrix:
        found = self._find_one(item)
        if found is None:
            found = self._find_two(item, pairs)
        return (self._inverse @ item) / self._scale if found is None else found

    def _find_one(self, item: _Matrix) -> _Matrix | None:
        coefficients = np.zeros(self._rows.shape[1])
        if not item.any():
            return coefficients
        for term, column in enumerate(self._rows.T):
            if column[0] and np.allclose(column * (item[0] / column[0]), item, rtol=_EXACT, atol=0.5):
                coefficients[term] = item[0] / column[0]
                return coefficients
        return None

    def _find_two(self, item: _Matrix, pairs: Sequence[tuple[int, int]]) -> _Matrix | None:
        if len(item) < 2:
            return None
        for pair in pairs:
            columns = self._rows[:, pair] / self._scale[[*pair]]
            if abs(np.linalg.det(columns[:2])) < _EXACT:
                continue
            found = np.linalg.solve(columns[:2], item[:2])
            if (found >= 0).all() and np.allclose(columns @ found, item, rtol=_EXACT, atol=0.5):
                coefficients = np.zeros(self._rows.shape[1])
                coefficients[[*pair]] = found / self._scale[[*pair]]
                return coefficients
        return None
