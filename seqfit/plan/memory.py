"""From a traced step to what a device must hold: tensors, what its allocator adds, and what a process takes anyway.

In: a `Tape` and, for a GPU, its rules and capacity. Out: a `Memory` with the peak and its parts.

    CPU   peak of allocated bytes; the process adds what Python, its libraries and malloc take
    GPU   many steps are replayed on a model of the caching allocator, for batches of other lengths find its memory cut
          into pieces that don't fit; the CUDA context comes on top
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seqfit.plan.allocator import Allocate, Free, OutOfMemory, replay
from seqfit.plan.device_rules import DeviceRules
from seqfit.plan.tape import CATEGORIES, GIVEN, GRADIENTS, STATE, WEIGHTS, Block, Tape

CONTEXT_BYTES = 450 * 2**20  # of a process on a current NVIDIA driver with torch 2 and lazy loading of kernels
_WORKSPACES = (-1, -2)  # keys of the two cuBLAS workspaces: the forward's thread and the backward's


@dataclass(frozen=True)
class Memory:
    """What one step takes at its peak."""

    allocated_bytes: int  # tensors
    reserved_bytes: int  # what the allocator holds for them; the same on a CPU
    context_bytes: int
    parts: dict[str, int]  # category -> bytes at the peak, as allocated
    out_of_memory: OutOfMemory | None = None  # the request that the capacity does not hold

    @property
    def total_bytes(self) -> int:
        """As nvidia-smi shows it for the process."""
        return self.reserved_bytes + self.context_bytes


def measure_tape(tape: Tape, rules: DeviceRules, *, context_bytes: int = 0) -> Memory:
    """The peak of one traced step, as if all steps were like it."""
    return measure_steps([[tape] * len(tape.parts)] * 2, rules, context_bytes=context_bytes)


def measure_steps(
    steps: Sequence[Sequence[Tape]],
    rules: DeviceRules,
    *,
    context_bytes: int = 0,
    capacity_bytes: int | None = None,
) -> Memory:
    """The peak over steps whose micro-batches have the shapes of these tapes, of one model and strategy."""
    largest = max((tape for step in steps for tape in step), key=lambda tape: tape.peak_bytes)
    parts = sum_categories(largest.live_at_peak())
    if rules.kind == "cpu":
        return Memory(largest.peak_bytes, largest.peak_bytes, 0, parts)
    room = None if capacity_bytes is None else max(capacity_bytes - context_bytes, 0)
    replayed = replay(list_requests(steps, rules.workspace_bytes), room)
    return Memory(
        replayed.peak_allocated_bytes, replayed.peak_reserved_bytes, context_bytes, parts, replayed.out_of_memory
    )


def sum_categories(blocks: list[Block]) -> dict[str, int]:
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
        if number == 0:  # what stays is taken where activations have just been, between gradients
            yield from sequence.keep(GRADIENTS)
            yield from sequence.keep(STATE)
        yield from sequence.play(step[-1], step[-1].events[step[-1].update_from :])
        yield from sequence.drop()


class _Sequence:
    """Requests of many steps; each block gets a new key whenever it is taken again."""

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
        """What stays from now on."""
        for number, block in self._lasting.items():
            if block.category == category:
                yield Allocate(number, block.bytes)

    def play(self, tape: Tape, events: Sequence[int]) -> Iterator[Allocate | Free]:
        """A part of a step, with the sizes of a tape. Templates number alike only what lasts."""
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
