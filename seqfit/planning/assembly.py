"""The tape of a deep model from that of a shallow one, because every layer does what its neighbour does.

In: the tape of a model with few layers, in which events, blocks and kernels know their layer, and the depths of the
model that is planned. Out: its tape, equal to a traced one event for event. A stack of six layers as one of eight:

    traced       0 1 2 3 4 5            two layers at each end, and two between that have to be alike
    assembled    0 1 2 2' 2'' 2''' 4 5    in the forward, in the other direction in the backward

A copy allocates blocks of its own. What it frees is found as the traced layer found it: relative to itself (its own
activations, the output of the layer before) or always the same (the first layer's bias). Which of the two shows in
the layer next to it, which must otherwise do the same: where it does not, `NotAlike` is raised, and the whole model
has to be traced. With a period of two (gradient checkpointing of every other layer) two layers are repeated together.

    layer 1 frees the block of layer 0,  layer 2 that of layer 1     relative: layer 5 frees that of layer 4
    layer 1 frees the block of layer 0,  layer 2 that of layer 0     the same for all
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seqfit.planning.tape import KernelCost, Layer, MemoryBlock, Shares, Tape, TapeSpan

EDGE = 2  # periods at the front of a stack, and layers at its back, that may differ from those between


class NotAlike(Exception):
    """Layers that should do the same do not: the whole model has to be traced."""


@dataclass(frozen=True)
class Depth:
    """Layers of one stack: as planned, as traced, and how they repeat."""

    planned: int
    traced: int
    period: int = 1

    @property
    def ahead(self) -> int:
        """The first layers, which may differ from those between."""
        return EDGE * self.period

    @property
    def behind(self) -> int:
        """The last ones."""
        return max(EDGE, self.period)

    @property
    def added(self) -> int:
        return self.planned - self.traced

    def is_between(self, layer: int) -> bool:
        return self.ahead <= layer < self.traced - self.behind

    def find_traced(self, layer: int) -> int:
        """The traced layer that a planned one is a copy of."""
        if layer < self.ahead or not self.added:
            return layer
        if layer >= self.planned - self.behind:
            return layer - self.added
        return self.ahead + (layer - self.ahead) % self.period

    def find_twin(self, layer: int) -> int:
        """A traced layer between the edges that is one period away."""
        return layer + self.period if self.is_between(layer + self.period) else layer - self.period

    def find_planned(self, layer: int) -> list[int]:
        """All copies of a traced layer that stands for them."""
        return [copy for copy in range(self.planned) if self.find_traced(copy) == layer]


def choose_depth(planned: int, period: int) -> int:
    """The fewest layers that show two periods between both edges, and end in the same phase of the period."""
    least = (EDGE + 2) * period + max(EDGE, period)
    traced = least + (planned - least) % period
    return traced if planned > traced else planned


@dataclass
class _Run:
    """What one layer does between two others, or what no layer does: spans, or a part of a span's events."""

    layer: Layer | None
    sweep: int  # runs of one pass over a stack have the same number
    spans: list[_Span] = field(default_factory=list)


@dataclass
class _Span:
    span: TapeSpan
    events: list[int]
    kernels: list[KernelCost]
    is_start: bool = False  # of a micro-batch's forward
    is_update: bool = False
    begins: bool = True  # a later part of a span that is not one layer's


def assemble(tape: Tape, depths: Mapping[str, Depth]) -> Tape:
    """`depths`: of each stack, by the name that its layers have in the tape."""
    return _Assembly(tape, depths).run()


class _Assembly:
    def __init__(self, tape: Tape, depths: Mapping[str, Depth]) -> None:
        self._old, self._depths = tape, depths
        self._new = Tape(spans=[])
        self._runs = _find_runs(tape, depths)
        # Where each block of the short tape comes from: its run, its place in it, and the layer of that run.
        self._made: dict[int, tuple[int, int]] = {}
        for number, run in enumerate(self._runs):
            place = 0
            for part in run.spans:
                for event in part.events:
                    if event >= 0:
                        self._made[event] = (number, place)
                        place += 1
        self._sweeps: dict[tuple[int, Layer | None], int] = {
            (run.sweep, run.layer): number for number, run in enumerate(self._runs)
        }
        # Block of the new tape by sweep, planned layer and place.
        self._placed: dict[tuple[int, Layer | None, int], int] = {}
        self._freed: set[int] = set()
        self._check_alike()

    def run(self) -> Tape:
        number = 0
        while number < len(self._runs):
            run = self._runs[number]
            if run.layer is None:
                self._copy(run, None)
                number += 1
                continue
            sweep = [other for other in self._runs[number:] if other.sweep == run.sweep]
            assert [*map(id, sweep)] == [*map(id, self._runs[number : number + len(sweep)])]
            by_layer = {other.layer.index: other for other in sweep if other.layer is not None}
            depth = self._depths[run.layer.stack]
            planned = sorted(
                (copy for layer in by_layer for copy in depth.find_planned(layer)),
                reverse=len(sweep) > 1 and sweep[0].layer > sweep[1].layer,  # type: ignore[operator]
            )
            for copy in planned:
                self._copy(by_layer[depth.find_traced(copy)], copy)
            number += len(sweep)
        self._new.order_frees()
        return self._new

    def _copy(self, run: _Run, planned: int | None) -> None:
        """One run once more, as what a planned layer does."""
        new, place = self._new, 0
        layer = None if run.layer is None or planned is None else Layer(run.layer.stack, planned)
        for part in run.spans:
            if part.begins:
                if part.is_start:
                    new.parts.append(len(new.events))
                if part.is_update:
                    new.update_from = len(new.events)
                name = _rename(part.span.name, run.layer, layer)
                place_name = _rename(part.span.place, run.layer, layer)
                inside = part.span.layer and layer
                new.spans.append(TapeSpan(part.span.phase, name, len(new.events), len(new.kernels), inside, place_name))
            for event in part.events:
                if event >= 0:
                    number = new.allocate(self._build_block(self._old.blocks[event], run.layer, layer))
                    self._placed[run.sweep, layer, place] = number
                    place += 1
                else:
                    for freed in self._find_freed(~event, run, layer):
                        if freed in self._freed:
                            raise NotAlike(f"a copy of a layer of {run.layer} frees what is gone")
                        self._freed.add(freed)
                        new.free(freed)
            self._copy_kernels(part.kernels)

    def _copy_kernels(self, kernels: Sequence[KernelCost]) -> None:
        """One by one; in the update those of each layer for every copy, and those of all weights with more bytes."""
        span = len(self._new.spans) - 1
        layers = [_only_layer(kernel) for kernel in kernels]
        for sweep in _find_sweeps(layers):
            by_layer: dict[Layer | None, list[KernelCost]] = {}
            for number in sweep:
                by_layer.setdefault(layers[number], []).append(kernels[number])
            for layer, group in by_layer.items() if None in by_layer else self._order_copies(by_layer):
                for kernel in group:
                    shares, moved = self._grow(kernel.shares) if layer is None else ((), 0)
                    size = moved if shares else kernel.bytes
                    self._new.kernels.append(  # tens of thousands: `replace` takes four times as long
                        KernelCost(
                            kernel.name, span, kernel.dtype, kernel.flops, size, kernel.calls, shares, kernel.tensors
                        )
                    )

    def _order_copies(self, by_layer: Mapping[Layer | None, list[KernelCost]]) -> list[tuple[Layer, list[KernelCost]]]:
        copies = [
            (Layer(layer.stack, copy), group)
            for layer, group in by_layer.items()
            if layer is not None
            for copy in self._depths[layer.stack].find_planned(layer.index)
        ]
        order = [layer for layer in by_layer if layer is not None]
        return sorted(copies, key=lambda item: item[0], reverse=order[0] > order[-1])

    def _find_freed(self, block: int, run: _Run, layer: Layer | None) -> list[int]:
        """The blocks of the new tape that a copy frees where the short tape frees this one."""
        number, place = self._made[block]
        owner = self._runs[number]
        if owner.layer is None:
            return [self._placed[owner.sweep, None, place]]
        depth = self._depths[owner.layer.stack]
        if layer is None or run.layer is None:  # one free for each copy
            copies = depth.find_planned(owner.layer.index) if depth.added else [owner.layer.index]
        else:
            copies = [self._find_layer(block, owner.layer, run, layer)]
        try:
            return [self._placed[owner.sweep, Layer(owner.layer.stack, copy), place] for copy in copies]
        except KeyError:
            raise NotAlike(f"{run.layer} frees what a copy of {owner.layer} has not allocated") from None

    def _find_layer(self, block: int, owner: Layer, run: _Run, layer: Layer) -> int:
        """Of which planned layer the block is that a copy of a run frees."""
        assert run.layer is not None
        depth, traced = self._depths[owner.stack], run.layer.index
        if not depth.added:
            return owner.index
        is_behind = not depth.is_between(owner.index) and owner.index >= depth.ahead
        if owner.stack != run.layer.stack:
            if depth.is_between(owner.index):
                raise NotAlike(f"{run.layer} frees what {owner} made")
            return owner.index + depth.added if is_behind else owner.index
        if depth.is_between(traced):
            if owner.index != self._others[run.sweep, traced, block]:  # relative to itself
                return layer.index + owner.index - traced
            if depth.is_between(owner.index):
                raise NotAlike(f"all of {owner.stack} free what {owner} made")
            return owner.index + depth.added if is_behind else owner.index
        if traced < depth.ahead:
            return owner.index + depth.added if is_behind else owner.index
        return owner.index if owner.index < depth.ahead else owner.index + depth.added

    def _check_alike(self) -> None:
        """Every layer between the edges does what the one a period away does; notes whose blocks that one frees."""
        self._others: dict[tuple[int, int, int], int] = {}
        for run in self._runs:
            if run.layer is None or not self._depths[run.layer.stack].added:
                continue
            depth = self._depths[run.layer.stack]
            if not depth.is_between(run.layer.index):
                continue
            twin = self._sweeps.get((run.sweep, Layer(run.layer.stack, depth.find_twin(run.layer.index))))
            if twin is None:
                raise NotAlike(f"{run.layer} has no layer like it")
            self._compare(run, self._runs[twin])

    def _compare(self, run: _Run, twin: _Run) -> None:
        assert run.layer is not None
        assert twin.layer is not None
        alike = len(run.spans) == len(twin.spans) and all(
            self._describe(one, run.layer) == self._describe(other, twin.layer)
            for one, other in zip(run.spans, twin.spans, strict=True)
        )
        if not alike:
            raise NotAlike(f"{run.layer} and {twin.layer} do not do the same")
        shift = twin.layer.index - run.layer.index
        for one, other in zip(run.spans, twin.spans, strict=True):
            for event, like in zip(one.events, other.events, strict=True):
                if event >= 0:
                    continue
                (first, place), (second, other_place) = self._made[~event], self._made[~like]
                owner, match = self._runs[first], self._runs[second]
                if (owner.sweep, place) != (match.sweep, other_place) or (owner.layer is None) != (match.layer is None):
                    raise NotAlike(f"{run.layer} and {twin.layer} free different blocks")
                if owner.layer is None or match.layer is None:
                    raise NotAlike(f"{run.layer} and {twin.layer} both free what no layer made")
                if match.layer.index - owner.layer.index not in (0, shift):
                    raise NotAlike(f"{run.layer} and {twin.layer} free blocks of other layers")
                self._others[run.sweep, run.layer.index, ~event] = match.layer.index

    def _describe(self, part: _Span, layer: Layer) -> Any:
        blocks = [self._old.blocks[event] if event >= 0 else None for event in part.events]
        return (
            (part.span.phase, _rename(part.span.name, layer, None), part.begins),
            [b and (b.bytes, b.category, _rename(b.place, layer, None), b.kernel, b.shape) for b in blocks],
            [(k.name, k.dtype, k.flops, k.bytes, k.calls) for k in part.kernels],
        )

    def _build_block(self, block: MemoryBlock, old: Layer | None, new: Layer | None) -> MemoryBlock:
        shares, total = self._grow(block.shares)
        if not shares or old is not None:
            place = _rename(block.place, old, new)
            return MemoryBlock(block.bytes, block.category, place, block.kernel, block.shape, new or block.layer)
        rows = block.shape[0] * total // block.bytes
        return replace(block, bytes=total, shape=(rows, *block.shape[1:]), shares=shares)

    def _grow(self, shares: Shares) -> tuple[Shares, int]:
        """Bytes that belong to layers, of as many as are planned."""
        grown: list[tuple[Layer | None, int]] = []
        for layer, size in shares:
            depth = None if layer is None else self._depths[layer.stack]
            copies = [None] if depth is None or layer is None else depth.find_planned(layer.index)
            grown += [(None if copy is None or layer is None else Layer(layer.stack, copy), size) for copy in copies]
        return tuple(grown), sum(size for _, size in grown)


def _rename(place: str, old: Layer | None, new: Layer | None) -> str:
    """The name of a module in another layer; in none with a star, to compare."""
    if old is None:
        return place
    before = f"{old.stack}.{old.index}"
    if place != before and not place.startswith(f"{before}."):
        return place
    return f"{old.stack}.{'*' if new is None else new.index}{place[len(before) :]}"


def _find_runs(tape: Tape, depths: Mapping[str, Depth]) -> list[_Run]:
    """The tape in order, in runs of one layer each; what lies between two layers of a sweep belongs to the earlier."""
    kernels: dict[int, list[KernelCost]] = {}
    for kernel in tape.kernels:
        kernels.setdefault(kernel.span, []).append(kernel)
    starts = set(tape.parts)
    before = ""
    spans: list[_Span] = []
    for number, (span, events) in enumerate(tape.span_events()):
        part = _Span(span, events, kernels.get(number, []))
        if span.phase == "forward" and span.first_event in starts:
            part.is_start = True
            starts.discard(span.first_event)
        part.is_update = span.phase == "update" != before  # the last one counts: behind each backward is one
        before = span.phase
        spans.append(part)
    # Pieces: a layer's span is one, any other is split. Phases are apart: layer 0 ends a backward and begins a forward.
    runs: list[_Run] = []
    made: dict[int, Layer | None] = {}
    phase, chunk = "", list[tuple[_Span, Layer | None]]()
    for part in spans:
        if part.span.phase != phase or part.is_start:
            _group(chunk, runs)
            chunk, phase = [], part.span.phase
        if part.span.layer is None:
            chunk += _split_span(tape, part, made)
        else:
            made |= {event: part.span.layer for event in part.events if event >= 0}
            chunk.append((part, part.span.layer))
    _group(chunk, runs)
    return runs


def _only_layer(kernel: KernelCost) -> Layer | None:
    """The layer of an operation on one weight; None for one on the weights of several."""
    layers = {layer for layer, _ in kernel.shares if layer is not None}
    return layers.pop() if len(layers) == 1 else None


def _find_sweeps(layers: Sequence[Layer | None]) -> list[list[int]]:
    """Numbers of neighbours: one sweep as long as layers of a stack follow each other in one direction.

    What is no layer's belongs to the sweep, and to the layer before it, only where the sweep goes on behind it.

        -  0 0 - 1 1 - 2 -  0 1 2      ->   [-] [0 0 - 1 1 - 2] [-] [0 1 2]
    """
    sweeps: list[list[int]] = []
    gap: list[int] = []
    last: Layer | None = None
    step = 0
    for number, layer in enumerate(layers):
        if layer is None:
            gap.append(number)
            continue
        change = layer.index - last.index if last is not None and layer.stack == last.stack else 2
        if change in (0, step or change) and abs(change) <= 1:
            sweeps[-1] += [*gap, number]
            step = change or step
        else:
            sweeps += [[other] for other in gap]
            sweeps.append([number])
            step = 0
        gap, last = [], layer
    return [*sweeps, *([other] for other in gap)]


def _group(pieces: Sequence[tuple[_Span, Layer | None]], runs: list[_Run]) -> None:
    """Appends the runs of these pieces."""
    for sweep in _find_sweeps([layer for _, layer in pieces]):
        number = runs[-1].sweep + 1 if runs else 0
        for place in sweep:
            piece, layer = pieces[place]
            if place != sweep[0] and layer in (None, runs[-1].layer):
                runs[-1].spans.append(piece)
            else:
                runs.append(_Run(layer, number, [piece]))


def _split_span(tape: Tape, part: _Span, made: dict[int, Layer | None]) -> list[tuple[_Span, Layer | None]]:
    """Parts of a span by the layer that they belong to; a list of frees of several layers is no layer's."""
    pieces: list[tuple[_Span, Layer | None]] = []

    def add(layer: Layer | None, events: list[int]) -> None:
        if pieces and pieces[-1][1] == layer:
            pieces[-1][0].events.extend(events)
        else:
            pieces.append((replace(part, events=list(events), kernels=[], is_start=False, is_update=False), layer))

    place, events = 0, part.events
    while place < len(events):
        if events[place] >= 0:
            layer = tape.blocks[events[place]].layer
            made[events[place]] = layer
            add(layer, [events[place]])
            place += 1
            continue
        end = place
        while end < len(events) and events[end] < 0:
            end += 1
        owners = {made.get(~event) for event in events[place:end]}
        owner = owners.pop() if len(owners) == 1 else None
        inside = owner is not None and bool(pieces) and pieces[-1][1] == owner
        add(owner if inside else None, events[place:end])
        place = end
    if not pieces or pieces[0][1] is not None:
        pieces.insert(0, (replace(part, events=[], kernels=[]), None))
    for piece, _ in pieces[1:]:
        piece.begins = piece.is_start = piece.is_update = False
    first = pieces[0][0]
    first.is_start, first.is_update, first.kernels = part.is_start, part.is_update, part.kernels
    return pieces
