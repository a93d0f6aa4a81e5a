"""From one GPU's trace to what several need to know of it: live bytes by phase, and the model's units in order.

In: the template of a traced step and a shape. Out: `MemoryCurves` for layout_memory.py, a `UnitSchedule` for
schedule.py. Spans of the tape know their phase and layer; what no layer does belongs to the root, at the beginning
(embeddings) or the end (head, loss), or to the block before it.

    spans, forward     embed | block 0 | block 1 | norm | block 2 | head        block 1 gets the norm
    units              0: embed and head    1: block 0    2: block 1    3: block 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from seqfit.planning.layout_memory import AT_BACKWARD_END, IN_BACKWARD, IN_FORWARD, IN_UPDATE, MemoryCurves, ShardSizes
from seqfit.planning.schedule import ModelUnit, Segment, UnitSchedule
from seqfit.planning.tape import CATEGORIES, GRADIENTS, STATE, WEIGHTS, Layer, Tape

_PHASES = {"backward": IN_BACKWARD, "update": IN_UPDATE}
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModelSizes:
    """Bytes of a model's weights and their gradients, in blocks and outside of them."""

    largest_block: int
    largest_block_gradient: int
    in_blocks: int
    in_block_gradients: int
    embedding_gradient: int
    end: int  # the larger one of embedding and head
    weights: int
    gradients: int

    @classmethod
    def of(cls, model: Any, blocks: Sequence[nn.Module]) -> ModelSizes:
        embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
        return cls(
            largest_block=max(map(size_of, blocks)),
            largest_block_gradient=max(map(_gradient_of, blocks)),
            in_blocks=sum(map(size_of, blocks)),
            in_block_gradients=sum(map(_gradient_of, blocks)),
            embedding_gradient=_gradient_of(embedding),
            end=max(size_of(embedding), 0 if head is None else size_of(head)),
            weights=size_of(model),
            gradients=_gradient_of(model),
        )

    def shard_sizes(self, *, halves: bool) -> ShardSizes:
        """`halves`: blocks are gathered and differentiated in 16 bits, and their gradients reduced in 32."""
        divisor = 2 if halves else 1
        return ShardSizes(
            block_bytes=self.largest_block // divisor,
            block_gradient_bytes=self.largest_block_gradient // divisor,
            block_reduced_bytes=self.largest_block_gradient,
            root_bytes=self.weights - self.in_blocks,
            root_gradient_bytes=self.gradients - self.in_block_gradients,
            end_bytes=self.end,
            stored_block_bytes=self.largest_block,
        )


def size_of(module: nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def _gradient_of(module: nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in module.parameters() if weight.requires_grad)


class EventIndex:
    """What the events of a tape are, without their sizes; `kept`: those of a step with one micro-batch."""

    def __init__(self, tape: Tape, kept: npt.NDArray[np.int64] | None) -> None:
        numbers = np.arange(len(tape.events)) if kept is None else kept
        self._events = np.array(tape.events, dtype=np.int64)[numbers]
        self._blocks = np.where(self._events >= 0, self._events, ~self._events)
        category = np.array([CATEGORIES.index(block.category) for block in tape.blocks])[self._blocks]
        self._is = {name: category == place for place, name in enumerate(CATEGORIES)}
        self._of_root = np.array([block.layer is None for block in tape.blocks])[self._blocks]
        self.phase = _find_phases(tape)[numbers]
        second = tape.parts[1] if kept is None and len(tape.parts) > 1 else len(tape.events)
        self.is_first = numbers < second

    def curves(self, block_sizes: _Floats, gradient_bytes: int, sizes: ShardSizes) -> MemoryCurves:
        changes = np.where(self._events >= 0, 1.0, -1.0) * block_sizes[self._blocks]
        live = {name: np.cumsum(np.where(where, changes, 0.0)) for name, where in self._is.items()}
        made = self._is[GRADIENTS] & (self._events >= 0) & (self.phase != IN_UPDATE)
        last = np.maximum.accumulate(np.where(made, np.arange(len(made)), 0))
        in_backward = (self.phase == IN_BACKWARD) | (self.phase == AT_BACKWARD_END)
        newest = np.where(made[last] & in_backward & self.is_first, changes[last], 0.0)
        return MemoryCurves(
            weight_bytes=round(float(live[WEIGHTS].max(initial=0))),
            state_bytes=round(float(live[STATE].max(initial=0))),
            gradient_bytes=gradient_bytes,
            gradients=live[GRADIENTS],
            root_gradients=np.cumsum(np.where(self._is[GRADIENTS] & self._of_root, changes, 0.0)),
            newest_gradient=newest,
            others={name: curve for name, curve in live.items() if name not in (WEIGHTS, GRADIENTS, STATE)},
            phase=self.phase,
            is_first=self.is_first,
            sizes=sizes,
        )


def _find_phases(tape: Tape) -> npt.NDArray[np.int64]:
    """Of each event; the end of a backward is what follows its last block."""
    phases = np.full(len(tape.events), IN_FORWARD, dtype=np.int64)
    ends = [span.first_event for span in tape.spans[1:]] + [len(tape.events)]
    behind = True  # the spans are read from the last one
    for span, end in zip(reversed(tape.spans), reversed(ends), strict=True):
        phase = _PHASES.get(span.phase, IN_FORWARD)
        if phase == IN_BACKWARD:
            behind = behind and span.layer is None
            phase = AT_BACKWARD_END if behind else IN_BACKWARD
        else:
            behind = True
        phases[span.first_event : end] = phase
    return phases


class UnitIndex:
    """Which unit each kernel of the first micro-batch works on, and what the units hold."""

    def __init__(self, tape: Tape, block_sizes: _Floats, sizes: ModelSizes, *, halves: bool) -> None:
        slots, layers = _find_slots(tape)
        self._kernel_slots = slots[[kernel.span for kernel in tape.kernels]]
        self._count = 2 * (len(layers) + 2)
        stored, gradients = _sum_by_layer(tape, block_sizes, WEIGHTS), _sum_by_layer(tape, block_sizes, GRADIENTS)
        divisor = 2 if halves else 1
        root_gradient = sizes.gradients - sizes.in_block_gradients
        root_bytes = sizes.weights - sizes.in_blocks
        units = [ModelUnit(root_bytes, root_gradient, root_bytes)]
        for layer in layers:
            weights = round(stored.get(layer, 0.0))
            units.append(ModelUnit(weights // divisor, round(gradients.get(layer, 0.0)), weights))
        self._units = tuple(units)
        self._at_ends = sizes.embedding_gradient, max(0, root_gradient - sizes.embedding_gradient)

    def schedule(self, kernel_seconds: _Floats) -> UnitSchedule:
        used = self._kernel_slots >= 0
        seconds = np.bincount(self._kernel_slots[used], kernel_seconds[used], self._count)
        forward, backward = (seconds / (seconds.sum() or 1.0)).reshape(2, -1).tolist()
        begin, end = self._at_ends
        segments = [Segment(0, forward[0], backward[0], begin)]
        for number, unit in enumerate(self._units[1:], start=1):
            segments.append(Segment(number, forward[number + 1], backward[number + 1], unit.gradient_bytes))
        segments.append(Segment(0, forward[1], backward[1], end))
        return UnitSchedule(self._units, tuple(segments))


def _find_slots(tape: Tape) -> tuple[npt.NDArray[np.int64], list[Layer]]:
    """Of each span: the root's beginning 0, its end 1, then the layers of the forward; as many again for the backward.

    -1 is what is not part of the first micro-batch. A span without a layer belongs to the one before it.
    """
    second = tape.parts[1] if len(tape.parts) > 1 else tape.update_from
    spans = [
        (number, span)
        for number, span in enumerate(tape.spans)
        if span.first_event < second and span.phase in ("forward", "backward")
    ]
    layers = list(dict.fromkeys(span.layer for _, span in spans if span.phase == "forward" and span.layer))
    place = {layer: number + 2 for number, layer in enumerate(layers)}
    slots = np.full(len(tape.spans), -1, dtype=np.int64)
    for phase, before, behind, offset in (("forward", 0, 1, 0), ("backward", 1, 0, len(layers) + 2)):
        own = [(number, span) for number, span in spans if span.phase == phase]
        last = max((at for at, (_, span) in enumerate(own) if span.layer in place), default=-1)
        current = before
        for at, (number, span) in enumerate(own):
            current = place.get(span.layer, current) if span.layer is not None else current
            slots[number] = offset + (behind if at > last else current)
    return slots, layers


def _sum_by_layer(tape: Tape, block_sizes: _Floats, category: str) -> dict[Layer | None, float]:
    sums: dict[Layer | None, float] = {}
    for block, size in zip(tape.blocks, block_sizes.tolist(), strict=True):
        if block.category == category:
            sums[block.layer] = sums.get(block.layer, 0.0) + size
    return sums
