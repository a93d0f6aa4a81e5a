"""One way of training as a function: micro-batches of any shape in, peak memory and seconds out, in milliseconds.

In: a fake step and two or three shapes to trace it at. Out: a `StepModel`. A step is traced with two micro-batches, for
the second one finds the gradients of the first, and a step of k is the first, k - 1 times the second, and the update.
Updates in the backward happen in a step's last micro-batch, so there a step is traced with that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from seqfit.data.batching import Batching
from seqfit.model.blocks import find_blocks
from seqfit.plan.device_rules import DeviceRules
from seqfit.plan.duration import Rates, kernel_seconds, kinds_of
from seqfit.plan.fake_step import FakeStep
from seqfit.plan.memory import Memory, measure_steps
from seqfit.plan.shape import Shape
from seqfit.plan.tape import Tape
from seqfit.plan.template import Template, fit_template, terms

_LIKELY = 4  # micro-batches with the most tokens, or the longest source, that may decide the peak
_TRACED_EXAMPLES = (2, 3)  # of a micro-batch; the rest is a matter of polynomials. One alone takes shortcuts in torch.


@dataclass(frozen=True)
class StepModel:
    """A template of two micro-batches, read as a step of any number."""

    template: Template
    batching: Batching
    largest_block_bytes: int  # weights of the largest block, or of the embedding
    gradient_bytes: int  # of all weights that learn

    def peak_bytes(self, shape: Shape, *, alone: bool) -> int:
        """Allocated bytes at the peak, where this micro-batch is the only one of its step, or a later one."""
        waiting = 0 if alone or len(self.template.tape.parts) > 1 else self.gradient_bytes
        return int(self._live_bytes(shape, alone=alone).max()) + waiting

    def parts(self, shape: Shape, *, alone: bool) -> dict[str, int]:
        """What the peak consists of, by category."""
        last = int(self._live_bytes(shape, alone=alone).argmax())
        sizes = np.maximum(self.template.block_bytes @ np.array(terms(shape)), 0)
        live: dict[int, None] = {}
        for event in (self._events_alone if alone else self._events_all)[: last + 1].tolist():
            live.update({event: None}) if event >= 0 else live.pop(~event)
        sums: dict[str, int] = {}
        for number in live:
            category = self.template.tape.blocks[number].category
            sums[category] = sums.get(category, 0) + int(sizes[number])
        return sums

    def largest(self, steps: Sequence[Sequence[Shape]]) -> tuple[Shape, bool]:
        """The micro-batch that decides the peak, and whether it is alone in its step."""
        candidates = {(shape, len(step) == 1): None for step in steps for shape in step}
        likely = sorted(candidates, key=lambda item: -item[0].real_tokens)[:_LIKELY]
        likely += sorted(candidates, key=lambda item: -max(item[0].sources))[:_LIKELY]
        return max(likely, key=lambda candidate: self.peak_bytes(candidate[0], alone=candidate[1]))

    def step_seconds(self, steps: Sequence[Sequence[Shape]], rates: Rates) -> npt.NDArray[np.float64]:
        """Of each step, with its micro-batches."""
        shapes = [shape for step in steps for shape in step]
        at = np.array([terms(shape) for shape in shapes]).T
        columns = [
            np.maximum(matrix @ at, 0)
            for matrix in (self.template.kernel_flops, self.template.kernel_bytes, self.template.kernel_calls)
        ]
        seconds = kernel_seconds(columns[0], columns[1], columns[2], self._kinds, rates)  # [kernel, shape]
        first, second, update = (seconds[part].sum(0) for part in self._parts)
        totals, place = [], 0
        for step in steps:
            later = second[place + 1 : place + len(step)].sum()
            totals.append(rates.step_seconds + first[place] + update[place] + later)
            place += len(step)
        return np.array(totals)

    def measure(
        self, steps: Sequence[Sequence[Shape]], rules: DeviceRules, context_bytes: int, capacity_bytes: int | None
    ) -> Memory:
        """Steps one after the other on the device's allocator."""
        tapes = [[self.template.at(shape) for shape in step] for step in steps]
        return measure_steps(tapes, rules, context_bytes=context_bytes, capacity_bytes=capacity_bytes)

    def _live_bytes(self, shape: Shape, *, alone: bool) -> npt.NDArray[np.float64]:
        sizes = np.maximum(self.template.block_bytes @ np.array(terms(shape)), 0)
        events = self._events_alone if alone else self._events_all
        return np.cumsum(np.where(events >= 0, sizes[events], -sizes[~events]))

    @cached_property
    def _events_all(self) -> npt.NDArray[np.int64]:
        return np.array(self.template.tape.events, dtype=np.int64)

    @cached_property
    def _events_alone(self) -> npt.NDArray[np.int64]:
        """Without the second micro-batch, and so without what only it would have left."""
        tape = self.template.tape
        if len(tape.parts) == 1:
            return self._events_all
        left = {event for event in tape.part(1) if event >= 0}
        events = [*tape.events[: tape.parts[1]], *tape.events[tape.update_from :]]
        return np.array([event for event in events if event >= 0 or ~event not in left], dtype=np.int64)

    @cached_property
    def _kinds(self) -> npt.NDArray[np.int64]:
        return kinds_of(self.template.tape)

    @cached_property
    def _parts(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which kernels belong to the first micro-batch, the second, the update."""
        tape = self.template.tape
        stretch = np.array([kernel.stretch for kernel in tape.kernels])
        update = _stretch_at(tape, tape.update_from)
        if len(tape.parts) == 1:
            return stretch < update, stretch < update, stretch >= update
        second = _stretch_at(tape, tape.parts[1])
        return stretch < second, (stretch >= second) & (stretch < update), stretch >= update


def model_step(fake: FakeStep, steps: Sequence[Sequence[Shape]]) -> StepModel:
    """Trace a step at the shapes of its largest and of a small micro-batch."""
    shapes = choose_traced(steps)
    count = 1 if fake.subject.strategy.optimizer_in_backward else 2
    tapes = [fake.trace([shape] * count) for shape in shapes]
    weights = [weight for weight in fake.built.step.model.parameters() if weight.requires_grad]
    return StepModel(
        fit_template(shapes, tapes),
        fake.batching,
        largest_block_bytes=_largest_block_bytes(fake),
        gradient_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
    )


def choose_traced(steps: Sequence[Sequence[Shape]]) -> list[Shape]:
    """A few examples of the largest micro-batch, and a few more."""
    shapes = [shape for step in steps for shape in step]
    largest = max(shapes, key=lambda shape: (max(shape.sources), shape.real_tokens))
    by_length = sorted(range(largest.examples), key=lambda row: -largest.sources[row])
    counts = sorted({min(count, largest.examples) for count in _TRACED_EXAMPLES})
    return [_take(largest, by_length[:count]) for count in counts]


def _take(shape: Shape, rows: Sequence[int]) -> Shape:
    targets = None if shape.targets is None else tuple(shape.targets[row] for row in rows)
    return Shape(tuple(shape.sources[row] for row in rows), targets, shape.packed)


def _largest_block_bytes(fake: FakeStep) -> int:
    """What FSDP gathers at once: the weights of a block, or the embedding."""
    model = fake.built.step.model.model
    modules = [*find_blocks(model, "a plan").values(), model.get_input_embeddings()]
    sizes = [sum(weight.numel() * weight.element_size() for weight in module.parameters()) for module in modules]
    return int(max(sizes))


def _stretch_at(tape: Tape, event: int) -> int:
    return next(
        (number for number, stretch in enumerate(tape.stretches) if stretch.first_event >= event), len(tape.stretches)
    )
