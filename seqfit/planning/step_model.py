"""One way of training as a function: micro-batches of any shape in, peak memory and seconds out, in milliseconds.

In: a fake step and the shapes of a run. Out: a `StepModel`, with a template for each regime that matters. A step is
traced with two micro-batches, because the second one finds the gradients of the first, and a step of k is the first,
k - 1 times the second, and the update. Updates in the backward happen in a step's last micro-batch, so there a step is
traced with that one alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from seqfit.data.batching import Batching
from seqfit.model.families import family_of
from seqfit.model.trainable import find_blocks
from seqfit.parallel.build import choose_blockwise_above
from seqfit.planning.device_rules import DeviceRules
from seqfit.planning.fake_step import FakeStep
from seqfit.planning.memory import Memory, measure_steps
from seqfit.planning.shape import Paths, Regime, Shape, choose_traced, find_regime
from seqfit.planning.tape import Tape
from seqfit.planning.template import DifferentPaths, Template, fit_template
from seqfit.planning.timing import Rates, check_time_limit, kernel_seconds, kinds_of

_LIKELY = 4  # micro-batches with the most tokens, or the longest source, that may decide the peak
_OTHER_PATH = 1.5  # what another path through attention may take more: kept scores against recomputed ones


@dataclass(frozen=True)
class RegimeModel:
    """The template of one regime, of two micro-batches, read as a step of any number."""

    template: Template
    gradient_bytes: int  # of all weights that learn

    def peak_bytes(self, shape: Shape, *, alone: bool) -> int:
        """Allocated bytes at the peak, where this micro-batch is the only one of its step, or a later one."""
        waiting = 0 if alone or len(self.template.tape.parts) > 1 else self.gradient_bytes
        return int(self._live_bytes(shape, alone=alone).max()) + waiting

    def parts(self, shape: Shape, *, alone: bool) -> dict[str, int]:
        """What the peak consists of, by category."""
        last = int(self._live_bytes(shape, alone=alone).argmax())
        sizes = self.template.sizes(shape)
        live: dict[int, None] = {}
        for event in (self._events_alone if alone else self._events_all)[: last + 1].tolist():
            live.update({event: None}) if event >= 0 else live.pop(~event)
        sums: dict[str, int] = {}
        for number in live:
            category = self.template.tape.blocks[number].category
            sums[category] = sums.get(category, 0) + int(sizes[number])
        return sums

    def seconds(self, shapes: Sequence[Shape], rates: Rates) -> npt.NDArray[np.float64]:
        """[3, shape]: of a first micro-batch, of a later one, of the update."""
        at = np.array([self.template.values(shape) for shape in shapes]).T
        columns = [
            np.maximum(matrix @ at, 0)
            for matrix in (self.template.kernel_flops, self.template.kernel_bytes, self.template.kernel_calls)
        ]
        seconds = kernel_seconds(columns[0], columns[1], columns[2], self._kinds, rates)  # [kernel, shape]
        return np.array([seconds[part].sum(0) for part in self._parts])

    def _live_bytes(self, shape: Shape, *, alone: bool) -> npt.NDArray[np.float64]:
        sizes = self.template.sizes(shape)
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


class Tracer:
    """Traces the templates of one fake step. Sent to another process, it builds its fake step again where needed."""

    def __init__(self, fake: FakeStep, change: Callable[[Template], Template] | None = None) -> None:
        step = fake.built.step
        self._fake: FakeStep | None = fake
        self._subject = fake.subject
        self._change = change
        self.paths = find_paths(fake)
        weights = [weight for weight in step.model.parameters() if weight.requires_grad]
        self.gradient_bytes = sum(weight.numel() * weight.element_size() for weight in weights)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_fake": None}

    def changed(self, change: Callable[[Template], Template]) -> Tracer:
        """One whose templates are changed by a rule."""
        other = copy.copy(self)
        other._change = change
        return other

    def trace(self, shape: Shape) -> tuple[RegimeModel, bool]:
        """The template of a shape's regime, and whether it holds for all of it. Where no two shapes of the regime do
        the same, the shape itself is traced, and its template holds for it alone."""
        shapes = choose_traced(shape, self.paths)
        tapes = [self._trace(other) for other in shapes]
        try:
            template, holds = fit_template(shapes, tapes, self.paths), True
        except DifferentPaths:
            template, holds = fit_template([shape], [self._trace(shape)], self.paths), False
        return RegimeModel(template if self._change is None else self._change(template), self.gradient_bytes), holds

    def _trace(self, shape: Shape) -> Tape:
        self._fake = self._fake or FakeStep(self._subject)
        return self._fake.trace([shape] * (1 if self._subject.strategy.optimizer_in_backward else 2))


@dataclass(frozen=True)
class BlockSizes:
    """What parallel strategies send at once."""

    largest_bytes: int  # weights of the largest block, or of the embedding
    all_bytes: int  # weights of all blocks, which FSDP sends in the precision that they are used in


class StepModel:
    """A step of any micro-batches: a template for each regime, traced when a shape of it is first looked at."""

    def __init__(self, tracer: Tracer, first: Shape, batching: Batching, blocks: BlockSizes) -> None:
        self.batching = batching
        self.largest_block_bytes = blocks.largest_bytes
        self.in_blocks_bytes = blocks.all_bytes
        self.gradient_bytes = tracer.gradient_bytes
        self._tracer = tracer
        self._models: dict[Regime, RegimeModel] = {}
        self._single: dict[Shape, RegimeModel] = {}  # of regimes that no template fits
        self._first = self._of(first)

    @property
    def template(self) -> Template:
        """Of the shape that it began with."""
        return self._first.template

    def changed(self, change: Callable[[Template], Template]) -> StepModel:
        """The same with a rule for all templates, those of later regimes, too."""
        other = copy.copy(self)
        other._tracer = self._tracer.changed(change)
        other._models = {regime: _change(model, change) for regime, model in self._models.items()}
        other._single = {shape: _change(model, change) for shape, model in self._single.items()}
        other._first = _change(self._first, change)
        return other

    def peak_bytes(self, shape: Shape, *, alone: bool) -> int:
        """Allocated bytes at the peak, where this micro-batch is the only one of its step, or a later one."""
        return self._of(shape).peak_bytes(shape, alone=alone)

    def parts(self, shape: Shape, *, alone: bool) -> dict[str, int]:
        """What the peak consists of, by category."""
        return self._of(shape).parts(shape, alone=alone)

    def largest(self, steps: Sequence[Sequence[Shape]]) -> tuple[Shape, bool]:
        """The micro-batch that decides the peak, and whether it is alone in its step.

        A regime costs two traces, so one that was not traced yet is estimated by a regime that was, and traced if
        that comes near the largest peak.
        """
        candidates = {(shape, len(step) == 1): None for step in steps for shape in step}
        likely = sorted(candidates, key=lambda item: -item[0].real_tokens)[:_LIKELY]
        likely += sorted(candidates, key=lambda item: -max(item[0].sources))[:_LIKELY]
        likely += sorted(candidates, key=lambda item: -max(item[0].targets or (0,)))[:_LIKELY]
        while True:
            check_time_limit()
            peaks = [self._near(shape).peak_bytes(shape, alone=alone) for shape, alone in likely]
            highest = max(peaks)
            near = [
                (peak, shape)
                for peak, (shape, _) in zip(peaks, likely, strict=True)
                if not self._is_traced(shape) and peak * self._slack(shape) >= highest
            ]
            if not near:
                return likely[peaks.index(highest)]
            self._of(max(near, key=lambda item: item[0])[1])

    def step_seconds(self, steps: Sequence[Sequence[Shape]], rates: Rates) -> npt.NDArray[np.float64]:
        """Of each step, with its micro-batches. The time of a regime that nobody has traced is that of a near one."""
        shapes = [shape for step in steps for shape in step]
        seconds = np.zeros((3, len(shapes)))
        groups: dict[int, list[int]] = {}
        models = [self._near(shape) for shape in shapes]
        for place, model in enumerate(models):
            groups.setdefault(id(model), []).append(place)
        for places in groups.values():
            seconds[:, places] = models[places[0]].seconds([shapes[place] for place in places], rates)
        first, second, update = seconds
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
        self.largest(steps)  # so that what decides is traced in its own regime
        tapes = [[self._near(shape).template.at(shape) for shape in step] for step in steps]
        return measure_steps(tapes, rules, context_bytes=context_bytes, capacity_bytes=capacity_bytes)

    def _of(self, shape: Shape) -> RegimeModel:
        """The model of this shape's own regime."""
        regime = find_regime(shape, self._tracer.paths)
        known = self._models.get(regime) or self._single.get(shape)
        if known is not None:
            return known
        check_time_limit()
        model, holds = self._tracer.trace(shape)
        if holds:
            self._models[regime] = model
        else:
            self._single[shape] = model
        return model

    def _is_traced(self, shape: Shape) -> bool:
        return find_regime(shape, self._tracer.paths) in self._models or shape in self._single

    def _near(self, shape: Shape) -> RegimeModel:
        """The model of the shape's regime, else of the one that has most in common with it."""
        if shape in self._single:
            return self._single[shape]
        regime = find_regime(shape, self._tracer.paths)
        if regime in self._models:
            return self._models[regime]
        return self._models[max(self._models, key=partial(_count_common, regime))] if self._models else self._first

    def _slack(self, shape: Shape) -> float:
        """How much more a shape may take than a regime that was traced says."""
        regime = find_regime(shape, self._tracer.paths)
        is_like_one = any(replace(known, is_one=regime.is_one) == regime for known in self._models)
        return 1.0 if is_like_one else _OTHER_PATH


def _change(model: RegimeModel, change: Callable[[Template], Template]) -> RegimeModel:
    return RegimeModel(change(model.template), model.gradient_bytes)


def _count_common(regime: Regime, other: Regime) -> int:
    return sum(getattr(regime, name) == getattr(other, name) for name in ("encoder", "decoder", "cross", "is_one"))


def find_paths(fake: FakeStep) -> Paths:
    """What decides over paths, as the step was built."""
    strategy, model = fake.subject.strategy, fake.built.step.parallel.model.model
    above = choose_blockwise_above(strategy.attention, fake.subject.device)
    is_chunked = strategy.loss == "chunked" and fake.subject.model.kind != "classifier"
    head = family_of(model).head(model) if is_chunked else None
    return Paths(above, None if head is None else len(head.weight_VD))


def model_step(fake: FakeStep, steps: Sequence[Sequence[Shape]]) -> StepModel:
    """Trace a step at a few examples of its largest micro-batch."""
    shapes = [shape for step in steps for shape in step]
    largest = max(shapes, key=lambda shape: (max(shape.sources), shape.real_tokens))
    return StepModel(
        Tracer(fake), largest, fake.batching, BlockSizes(_largest_block_bytes(fake), sum(_block_sizes(fake)))
    )


def _largest_block_bytes(fake: FakeStep) -> int:
    """What FSDP gathers at once: the weights of a block, or the embedding."""
    embedding = fake.built.step.parallel.model.model.get_input_embeddings()
    return max(*_block_sizes(fake), _size_of(embedding))


def _block_sizes(fake: FakeStep) -> list[int]:
    return [_size_of(block) for block in find_blocks(fake.built.step.parallel.model.model, "a plan").values()]


def _size_of(module: nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def _stretch_at(tape: Tape, event: int) -> int:
    return next(
        (number for number, stretch in enumerate(tape.stretches) if stretch.first_event >= event), len(tape.stretches)
    )
