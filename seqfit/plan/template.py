"""A step's memory and kernels as polynomials of the micro-batch's shape, so that any shape costs a millisecond.

In: a few shapes, traced. Out: a `Template` that gives the tape of any other shape.

    block 7 at 2 x 100, 2 x 200, 4 x 100 tokens     800, 1600, 1600 bytes     ->   4 * (tokens of all examples)

A step does the same things whatever its shape, but for loops: attention goes through segments and blocks of queries, a
chunked loss through chunks. What comes and goes inside one stretch (between two marks of the recorder) is therefore
one block of the stretch's own peak, and the sequence of the rest is the same for all shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seqfit.plan.shape import Shape
from seqfit.plan.tape import KINDS, TEMPORARIES, Block, Kernel, Tape

Matrix = npt.NDArray[np.float64]


def terms(shape: Shape) -> list[float]:
    """What sizes are sums of: examples, longest and all tokens, and the products that scores are made of."""
    sources = np.array(shape.sources, dtype=np.float64)
    targets = np.array(shape.targets or [0] * len(sources), dtype=np.float64)
    if not shape.packed:
        sources, targets = np.full_like(sources, sources.max()), np.full_like(targets, targets.max())
    s, t = sources.max(), targets.max()
    sums = [sources.sum(), targets.sum(), (sources**2).sum(), (sources * targets).sum(), (targets**2).sum()]
    return [1.0, len(sources), s, t, s * s, s * t, t * t, *sums]


@dataclass(frozen=True)
class Template:
    """A tape whose sizes are polynomials."""

    tape: Tape  # of one of the shapes; collapsed where they differ in more than sizes
    block_bytes: Matrix  # [block, term]
    kernel_flops: Matrix  # [kernel, term]
    kernel_bytes: Matrix
    kernel_calls: Matrix

    def at(self, shape: Shape) -> Tape:
        """The tape of another shape."""
        values = np.array(terms(shape))
        sizes = np.maximum(np.rint(self.block_bytes @ values), 0).astype(np.int64)
        blocks = [replace(block, bytes=int(size)) for block, size in zip(self.tape.blocks, sizes, strict=True)]
        return replace(self.tape, blocks=blocks)

    def peak_bytes(self, shape: Shape) -> int:
        """Of allocated bytes."""
        sizes = np.maximum(self.block_bytes @ np.array(terms(shape)), 0)
        events = np.array(self.tape.events)
        changes = np.where(events >= 0, sizes[events], -sizes[~events])
        return int(np.cumsum(changes).max())


def fit_template(shapes: Sequence[Shape], tapes: Sequence[Tape]) -> Template:
    """From tapes of the same step at several shapes."""
    if len({_signature(tape) for tape in tapes}) > 1:
        tapes = [collapse(tape) for tape in tapes]
    assert len({_signature(tape) for tape in tapes}) == 1, "the shapes take different paths through the model"
    solve = _Solver(shapes)
    kernels = [np.array([[k.flops, k.bytes, k.calls] for k in tape.kernels], dtype=np.float64) for tape in tapes]
    return Template(
        tape=tapes[0],
        block_bytes=solve(np.array([[block.bytes for block in tape.blocks] for tape in tapes], dtype=np.float64)),
        kernel_flops=solve(np.array([values[:, 0] for values in kernels])),
        kernel_bytes=solve(np.array([values[:, 1] for values in kernels])),
        kernel_calls=solve(np.array([values[:, 2] for values in kernels])),
    )


def collapse(tape: Tape) -> Tape:
    """With one block for all that comes and goes within a stretch, and one kernel of each kind and type in it."""
    collapsed = Tape()
    kept: dict[int, int] = {}
    kernels = _kernels_by_stretch(tape)
    for number, (stretch, events) in enumerate(tape.stretch_events()):
        collapsed.mark(stretch.phase, stretch.name)
        if stretch.first_event in tape.parts:
            collapsed.parts.append(len(collapsed.events))
        if stretch.first_event == tape.update_from:
            collapsed.update_from = len(collapsed.events)
        taken = {event for event in events if event >= 0}
        passing = {event for event in taken if ~event in events}
        passing_bytes = _peak_of(tape, events, passing)
        # The passing blocks' peak is taken once all lasting ones are there: at most a little too much.
        for event in events:
            if event >= 0 and event not in passing:
                kept[event] = collapsed.take(replace(tape.blocks[event]))
        collapsed.give(collapsed.take(Block(passing_bytes, TEMPORARIES, stretch.name, "passing")))
        for event in events:
            if event < 0 and ~event not in passing:
                collapsed.give(kept[~event])
        collapsed.kernels.extend(_sum_kernels(kernels.get(number, []), len(collapsed.stretches) - 1))
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


def _kernels_by_stretch(tape: Tape) -> dict[int, list[Kernel]]:
    found: dict[int, list[Kernel]] = {}
    for kernel in tape.kernels:
        found.setdefault(kernel.stretch, []).append(kernel)
    return found


def _sum_kernels(kernels: list[Kernel], stretch: int) -> list[Kernel]:
    """One entry for each kind of kernel, also where there is none, so that shapes can be compared."""
    groups: dict[str, list[Kernel]] = {kind: [] for kind in KINDS}
    for kernel in kernels:
        groups[kernel.kind].append(kernel)
    return [
        Kernel(
            kind,
            stretch,
            "bfloat16" if kind.startswith("half") else "float32",
            sum(kernel.flops for kernel in group),
            sum(kernel.bytes for kernel in group),
            sum(kernel.calls for kernel in group),
        )
        for kind, group in groups.items()
    ]


def _signature(tape: Tape) -> tuple[object, ...]:
    return tuple(tape.events), tuple(kernel.name for kernel in tape.kernels)


class _Solver:
    """Least squares on scaled terms; where terms can't be told apart, the smallest coefficients."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        rows = np.array([terms(shape) for shape in shapes])
        self._scale = np.abs(rows).max(0)
        self._scale[self._scale == 0] = 1.0
        self._inverse = np.linalg.pinv(rows / self._scale, rcond=1e-9)

    def __call__(self, values: Matrix) -> Matrix:
        """[item, term] from [shape, item]."""
        coefficients: Matrix = (self._inverse @ values).T / self._scale
        return coefficients
