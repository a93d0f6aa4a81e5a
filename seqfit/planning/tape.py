"""What a traced step did: which memory it allocated and freed, in order, and which kernels ran.

In: events from a recorder. Out: the bytes that are live after each event, the peak, and what the peak consists of.

    event          allocate 0: 8   allocate 1: 4   free 0   allocate 2: 6
    live bytes     8               12              4        10             peak 12 after event 1: blocks 0 and 1

Blocks have a category that later events may make more precise: a tensor of the backward turns out to be a gradient
when it becomes some weight's `.grad`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

WEIGHTS, GRADIENTS, STATE = "weights", "gradients", "optimizer state"
INPUTS, ACTIVATIONS, LOSS, TEMPORARIES = "inputs", "activations", "logits and loss", "temporaries"
GIVEN = "given"  # instead of a kernel: what existed before the step
CATEGORIES = (WEIGHTS, GRADIENTS, STATE, INPUTS, ACTIVATIONS, LOSS, TEMPORARIES)


@dataclass(frozen=True, order=True, slots=True)
class Layer:
    """One of the blocks that a model repeats: the list that holds it, and its place there."""

    stack: str  # model.encoder.block
    index: int


Shares = tuple[tuple[Layer | None, int], ...]  # bytes by the layer whose weights they belong to


@dataclass(slots=True)
class MemoryBlock:
    bytes: int
    category: str
    place: str  # the module that made it, "" outside of all
    kernel: str
    shape: tuple[int, ...] = ()
    layer: Layer | None = None  # that it was made in, or whose weight it belongs to
    shares: Shares = ()  # of a vector with an element for each weight


# By what limits them. "update" is the other work of the optimizer, which streams through all weights.
KINDS = ("product", "half product", "batched product", "half batched product", "other", "update")


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One operation that the device runs, or several of a kind."""

    name: str
    span: int
    dtype: str
    flops: int  # of matrix products
    bytes: int  # read and written
    calls: int = 1
    shares: Shares = ()  # of these bytes, where one operation goes over the weights of all layers
    tensors: tuple[int, ...] = ()  # these bytes by tensor, each of which is one product of dimensions

    @property
    def kind(self) -> str:
        """One of KINDS, except "update", which only `Tape.kind_of` knows."""
        if self.name in KINDS:
            return self.name
        if not self.flops:
            return "other"
        batched = "batched product" if self.name in ("bmm", "baddbmm", "attention") else "product"
        return f"half {batched}" if self.dtype in ("float16", "bfloat16") else batched


@dataclass(frozen=True, slots=True)
class TapeSpan:
    """The events and kernels between two marks: a part of a module's forward, or one node of the backward."""

    phase: str  # forward, backward, update
    name: str
    first_event: int
    first_kernel: int
    layer: Layer | None = None  # whose forward or backward it is part of
    place: str = ""  # the module whose forward or backward it is


@dataclass
class Tape:
    """A growing record. `events` holds a block's number where it was allocated, its complement (~) where freed."""

    blocks: list[MemoryBlock] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    kernels: list[KernelCost] = field(default_factory=list)
    spans: list[TapeSpan] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)  # the event that each micro-batch's forward begins with
    update_from: int = 0  # the first event after the last backward

    def kind_of(self, kernel: KernelCost) -> str:
        is_other = kernel.kind == "other" and kernel.span < len(self.spans)
        return "update" if is_other and self.spans[kernel.span].phase == "update" else kernel.kind

    def allocate(self, block: MemoryBlock) -> int:
        self.blocks.append(block)
        self.events.append(len(self.blocks) - 1)
        return len(self.blocks) - 1

    def free(self, number: int) -> None:
        self.events.append(~number)

    def order_frees(self) -> None:
        """Blocks that are freed together are freed by number: a cache drops its entries in arbitrary order."""
        bounds = {span.first_event for span in self.spans} | {*self.parts, self.update_from}
        start = 0
        for end in range(len(self.events) + 1):
            if end == len(self.events) or self.events[end] >= 0 or end in bounds:
                self.events[start:end] = sorted(self.events[start:end], reverse=True)
                start = end + (end < len(self.events) and self.events[end] >= 0)

    def mark(self, phase: str, name: str, layer: Layer | None = None, place: str | None = None) -> None:
        """Start a span; an empty one is replaced. `place`: where the name is not the module's."""
        span = TapeSpan(phase, name, len(self.events), len(self.kernels), layer, name if place is None else place)
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.first_event, last.first_kernel) == (span.first_event, span.first_kernel):
            self.spans[-1] = span
        else:
            self.spans.append(span)

    def live_bytes(self) -> npt.NDArray[np.int64]:
        """After each event."""
        changes = [self.blocks[n].bytes if n >= 0 else -self.blocks[~n].bytes for n in self.events]
        return np.cumsum(np.array(changes, dtype=np.int64))

    @property
    def peak_bytes(self) -> int:
        return int(self.live_bytes().max(initial=0))

    def live_at_peak(self) -> list[MemoryBlock]:
        return self.live_at(int(self.live_bytes().argmax())) if self.events else []

    def live_at(self, event: int) -> list[MemoryBlock]:
        live: dict[int, MemoryBlock] = {}
        for number in self.events[: event + 1]:
            if number >= 0:
                live[number] = self.blocks[number]
            else:
                del live[~number]
        return list(live.values())

    def part(self, micro_batch: int) -> list[int]:
        ends = [*self.parts[1:], self.update_from]
        return self.events[self.parts[micro_batch] : ends[micro_batch]]

    def span_events(self) -> Iterator[tuple[TapeSpan, list[int]]]:
        bounds = [span.first_event for span in self.spans[1:]] + [len(self.events)]
        for span, end in zip(self.spans, bounds, strict=True):
            yield span, self.events[span.first_event : end]
