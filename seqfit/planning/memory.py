"""From a traced step to what a device must hold: tensors, allocator overhead, CUDA context; and what the peak is.

In: a `Tape` and, for a GPU, its rules and capacity. Out: a `Memory` with the peak and its parts.

    CPU   peak of allocated bytes; the process adds what Python, its libraries and malloc need
    GPU   many steps are replayed on a model of the caching allocator, because batches of other lengths find its memory
          fragmented; the CUDA context comes on top

`explain_peak` makes a `PeakBreakdown` of it: a tree (category, part of the model, kind of tensor), the largest cause in
words, and a timeline of the step's memory.

    activations                 14.2 GiB
      encoder blocks (12)       13.0 GiB
        attention scores        11.8 GiB      <- the cause: 59% of the peak
        feed-forward             0.9 GiB
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqfit.model import find_place
from seqfit.planning.allocator import Allocate, AllocationFailed, Free, replay
from seqfit.planning.device_rules import DeviceRules
from seqfit.planning.report import MemoryPart, PeakBreakdown
from seqfit.planning.tape import (
    ACTIVATIONS,
    CATEGORIES,
    GIVEN,
    GRADIENTS,
    LOSS,
    STATE,
    TEMPORARIES,
    WEIGHTS,
    MemoryBlock,
    Tape,
)

CONTEXT_BYTES = 450 * 2**20  # of a process on a current NVIDIA driver with torch 2 and lazy loading of kernels
_WORKSPACES = (-1, -2)  # keys of the two cuBLAS workspaces: the forward's thread and the backward's


@dataclass(frozen=True)
class Memory:
    allocated_bytes: int  # tensors
    reserved_bytes: int  # what the allocator holds for them; the same on a CPU
    context_bytes: int
    parts: dict[str, int]  # category -> bytes at the peak, as allocated
    out_of_memory: AllocationFailed | None = None  # the first allocation that does not fit the capacity
    cache_releases: int = 0  # how often the allocator returned cached memory for want of capacity

    @property
    def total_bytes(self) -> int:
        """As nvidia-smi shows it for the process."""
        return self.reserved_bytes + self.context_bytes


def measure_tape(tape: Tape, rules: DeviceRules, *, context_bytes: int = 0) -> Memory:
    """The peak of one traced step, as if all steps were like it."""
    return measure_steps([[tape] * len(tape.parts)] * 2, rules, context_bytes=context_bytes)


def measure_steps(
    steps: Sequence[Sequence[Tape]], rules: DeviceRules, *, context_bytes: int = 0, capacity_bytes: int | None = None
) -> Memory:
    """The peak over steps whose micro-batches have the shapes of these tapes, of one model and strategy."""
    largest = max((tape for step in steps for tape in step), key=lambda tape: tape.peak_bytes)
    parts = sum_categories(largest.live_at_peak())
    if rules.kind == "cpu":
        return Memory(largest.peak_bytes, largest.peak_bytes, 0, parts)
    room = None if capacity_bytes is None else max(capacity_bytes - context_bytes, 0)
    replayed = replay(list_requests(steps, rules.workspace_bytes), room)
    return Memory(
        replayed.peak_allocated_bytes,
        replayed.peak_reserved_bytes,
        context_bytes,
        parts,
        replayed.out_of_memory,
        replayed.cache_releases,
    )


def sum_categories(blocks: list[MemoryBlock]) -> dict[str, int]:
    """Bytes of each category that occurs, in the usual order."""
    sums = dict.fromkeys(CATEGORIES, 0)
    for block in blocks:
        sums[block.category] += block.bytes
    return {category: total for category, total in sums.items() if total}


def list_requests(steps: Sequence[Sequence[Tape]], workspace_bytes: int) -> Iterator[Allocate | Free]:
    """What an allocator sees: weights, a first step whose update makes the optimizer's state, further steps."""
    assert all(len(step) == 1 or len(step[0].parts) > 1 for step in steps), "a later micro-batch adds to gradients"
    sequence = _Sequence(steps[0][0])
    yield from sequence.keep(WEIGHTS)
    for key in _WORKSPACES:
        yield Allocate(key, workspace_bytes)
    for number, step in enumerate(steps):
        for place, tape in enumerate(step):
            yield from sequence.play(tape, tape.part(min(place, len(tape.parts) - 1)))
            yield from sequence.drop(all_but=GRADIENTS)
        if number == 0:  # what stays is allocated where activations have just been, between gradients
            yield from sequence.keep(GRADIENTS)
            yield from sequence.keep(STATE)
        yield from sequence.play(step[-1], step[-1].events[step[-1].update_from :])
        yield from sequence.drop()


class _Sequence:
    """Requests of many steps; each block gets a new key whenever it is allocated again."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._lasting = {
            number: block
            for number, block in enumerate(tape.blocks)
            if block.kernel == GIVEN and block.category in (WEIGHTS, STATE, GRADIENTS)
        }
        self._keys: dict[int, int] = {}  # block -> the key that it is live under
        self._events = tape.events  # those that the numbers of blocks are of
        self._next_key = len(tape.blocks)

    def keep(self, category: str) -> Iterator[Allocate]:
        for number, block in self._lasting.items():
            if block.category == category:
                yield Allocate(number, block.bytes)

    def play(self, tape: Tape, events: Sequence[int]) -> Iterator[Allocate | Free]:
        """A part of a step, with the sizes of a tape. Templates share only the numbers of lasting blocks."""
        if tape.events is not self._events:
            yield from self.drop()
            self._tape, self._events = tape, tape.events
        for event in events:
            number = event if event >= 0 else ~event
            if number in self._lasting or tape.blocks[number].bytes == 0:
                continue
            if event >= 0:
                self._next_key += 1
                self._keys[number] = self._next_key
                yield Allocate(self._next_key, tape.blocks[number].bytes)
            elif number in self._keys:
                yield Free(self._keys.pop(number))

    def drop(self, all_but: str | None = None) -> Iterator[Free]:
        """What is left behind, such as a micro-batch's loss."""
        for number in [number for number in self._keys if self._tape.blocks[number].category != all_but]:
            yield Free(self._keys.pop(number))


def explain_peak(tape: Tape, label: str, memory: Memory, *, fits: bool) -> PeakBreakdown:
    """What the peak of a traced step consists of; `memory` is what was predicted of it."""
    live = tape.live_at_peak()
    parts = [_category_part(category, live) for category in CATEGORIES]
    phases, timeline = trace_timeline(tape)
    return PeakBreakdown(
        label=label,
        allocated_bytes=memory.allocated_bytes,
        reserved_bytes=memory.reserved_bytes,
        context_bytes=memory.context_bytes,
        fits=fits,
        cause=_name_cause(live),
        parts=sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes),
        phases=phases,
        timeline=timeline,
    )


def trace_timeline(tape: Tape) -> tuple[list[str], dict[str, list[int]]]:
    """Phases, and live bytes by category, at points spread evenly over the events."""
    first = tape.parts[0] if tape.parts else 0
    points = np.unique(np.linspace(first, len(tape.events) - 1, 400).astype(int))
    points = np.union1d(points, [int(tape.live_bytes().argmax())])
    sums = dict.fromkeys(CATEGORIES, 0)
    timeline: dict[str, list[int]] = {category: [] for category in CATEGORIES}
    wanted = set(points.tolist())
    for number, event in enumerate(tape.events):
        block = tape.blocks[event if event >= 0 else ~event]
        sums[block.category] += block.bytes if event >= 0 else -block.bytes
        if number in wanted:
            for category, total in sums.items():
                timeline[category].append(total)
    starts = [span.first_event for span in tape.spans]
    return [tape.spans[max(bisect_right(starts, point) - 1, 0)].phase for point in points.tolist()], timeline


def _category_part(category: str, live: list[MemoryBlock]) -> MemoryPart:
    blocks = [block for block in live if block.category == category]
    children = []
    if category in (ACTIVATIONS, TEMPORARIES, LOSS):
        for place, inside in _group(blocks, lambda block: _place(block.place)).items():
            kinds = [MemoryPart(kind, _sum(part)) for kind, part in _group(inside, _kind).items()]
            children.append(MemoryPart(place, _sum(inside), sorted(kinds, key=lambda part: -part.bytes)))
    return MemoryPart(category, _sum(blocks), sorted(children, key=lambda part: -part.bytes))


def _group(blocks: Iterable[MemoryBlock], name: Callable[[MemoryBlock], str]) -> dict[str, list[MemoryBlock]]:
    groups: dict[str, list[MemoryBlock]] = {}
    for block in blocks:
        groups.setdefault(name(block), []).append(block)
    return groups


def _sum(blocks: Iterable[MemoryBlock]) -> int:
    return sum(block.bytes for block in blocks)


def _place(place: str) -> str:
    side, _ = find_place(place)
    if side is not None:
        return f"{side} blocks"
    if "encoder" in place or "decoder" in place:
        return "encoder, outside blocks" if "encoder" in place else "decoder, outside blocks"
    return "head and loss" if place == "" or "lm_head" in place or "classifier" in place else "backward"


def _kind(block: MemoryBlock) -> str:
    """What a block is, from its shape and from the module that made it."""
    if is_scores(block):
        return "attention scores and bias"
    place = block.place.lower()
    if "attention" in place or "attn" in place:
        return "attention states"
    if find_place(block.place)[1]:
        return "feed-forward"
    return "norms, dropout, residuals"


def is_scores(block: MemoryBlock) -> bool:
    """[..., queries, keys] for each head: the only blocks with a head's dimension and no head's width at the end."""
    is_square = len(block.shape) >= 3 and min(block.shape[-2:]) > 1 and block.shape[-3] <= 256
    wide = len(block.shape) >= 3 and block.shape[-1] > 256 and block.shape[-2] > 1 and block.shape[-3] > 1
    kernels = ("_softmax", "bmm", "baddbmm", "add", "mul", "bernoulli_", "empty_like", "_to_copy", "clone", "passing")
    in_attention = "attention" in block.place.lower() or "attn" in block.place.lower()
    return is_square and wide and (in_attention or block.kernel in kernels)


def _name_cause(live: list[MemoryBlock]) -> str:
    total = max(_sum(live), 1)
    causes = {
        "attention scores and bias, which grow with the square of the sequence length": _sum(
            block for block in live if block.category in (ACTIVATIONS, TEMPORARIES) and is_scores(block)
        ),
        "logits and loss, which grow with the vocabulary": _sum(block for block in live if block.category == LOSS),
        "activations of linear layers, norms and dropout, which grow with the tokens per micro-batch": _sum(
            block for block in live if block.category == ACTIVATIONS and not is_scores(block)
        ),
        "weights, gradients and optimizer state, which do not depend on the batch size": _sum(
            block for block in live if block.category in CATEGORIES[:3]
        ),
    }
    name, size = max(causes.items(), key=lambda item: item[1])
    return f"{name} ({size / total:.0%} of the peak)"
