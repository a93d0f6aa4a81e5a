"""One strategy as a function: micro-batches of any shape in, peak memory and seconds out, in milliseconds.

In: a fake step and the shapes of a run. Out: a `StepModel`, with a template for each regime that matters. A step is
traced with two micro-batches, because the second one finds the gradients of the first, and a step of k is the first,
k - 1 times the second, and the update. Updates in the backward happen in a step's last micro-batch, so such a step is
traced with that one only. For several GPUs it also gives the `RankWork` of one:

    step of 80 ms in 2 micro-batches, AdamW on 60M weights 6 ms
    ->  RankWork(74 ms, 6 ms, 2 micro-batches, 240 MB of weights, 240 MB of gradients, 13 blocks)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedConfig, PreTrainedModel

from seqfit.model import family_of, find_blocks
from seqfit.parallel import choose_blockwise_above
from seqfit.planning.cluster import RankWork
from seqfit.planning.device_rules import DeviceRules
from seqfit.planning.fake_step import FakeStep, StepSpec, build_meta_model
from seqfit.planning.layout_memory import MemoryCurves, ShardSizes
from seqfit.planning.layout_trace import EventIndex, ModelSizes, UnitIndex
from seqfit.planning.memory import Memory, measure_steps
from seqfit.planning.schedule import UnitSchedule
from seqfit.planning.shape import Paths, Regime, Shape, choose_traced, find_regime
from seqfit.planning.tape import STATE, WEIGHTS, Tape
from seqfit.planning.template import DifferentPaths, Template, fit_template
from seqfit.planning.timing import Rates, check_time_limit, kernel_seconds, kinds_of, part_seconds

_LIKELY = 4  # micro-batches with the most tokens, or the longest source, that may decide the peak
_OTHER_PATH = 1.5  # what another path through attention may take more: kept scores against recomputed ones


@dataclass(frozen=True)
class RegimeModel:
    """The template of one regime, of two micro-batches, read as a step of any number; `single`: of only one."""

    template: Template
    gradient_bytes: int  # of all trainable weights
    _units: list[UnitIndex] = field(default_factory=list)  # built when it is first needed

    def peak_bytes(self, shape: Shape, *, single: bool) -> int:
        waiting = 0 if single or len(self.template.tape.parts) > 1 else self.gradient_bytes
        return int(self._live_bytes(shape, single=single).max()) + waiting

    def parts(self, shape: Shape, *, single: bool) -> dict[str, int]:
        last = int(self._live_bytes(shape, single=single).argmax())
        sizes = self.template.sizes(shape)
        live: dict[int, None] = {}
        for event in (self._events_single if single else self._events_all)[: last + 1].tolist():
            live.update({event: None}) if event >= 0 else live.pop(~event)
        sums: dict[str, int] = {}
        for number in live:
            category = self.template.tape.blocks[number].category
            sums[category] = sums.get(category, 0) + int(sizes[number])
        return sums

    def curves(self, shape: Shape, *, single: bool, sizes: ShardSizes) -> MemoryCurves:
        """Live bytes after each event, for layouts of several GPUs."""
        index = self._index_single if single else self._index_all
        return index.curves(self.template.sizes(shape), self.gradient_bytes, sizes)

    def schedule(self, shape: Shape, rates: Rates, sizes: ModelSizes, *, halves: bool) -> UnitSchedule:
        """The model's units in the order of their work, with their shares of a micro-batch's time."""
        template, at = self.template, self.template.values(shape)
        matrices = (template.kernel_flops, template.kernel_bytes, template.kernel_calls)
        flops, moved_bytes, calls = (np.maximum(matrix @ at, 0) for matrix in matrices)
        if not self._units:
            self._units.append(UnitIndex(template.tape, template.sizes(shape), sizes, halves=halves))
        return self._units[0].schedule(kernel_seconds(flops, moved_bytes, calls, self._kinds, rates))

    def seconds(self, shapes: Sequence[Shape], rates: Rates) -> npt.NDArray[np.float64]:
        """[3, shape]: of a first micro-batch, of a later one, of the update."""
        at = np.array([self.template.values(shape) for shape in shapes]).T
        costs, kinds, counts, parts = self._alike
        flops, moved_bytes, calls = np.maximum(costs @ at, 0)
        seconds = kernel_seconds(flops, moved_bytes, calls, kinds, rates) * counts  # [kernel, shape]
        calls *= counts
        each = [part_seconds(seconds[part], calls[part], rates.host_call_seconds) for part in parts]
        return np.array(each)

    def list_kernels(self) -> tuple[npt.NDArray[np.int64], tuple[npt.NDArray[np.bool_], ...]]:
        """The kind of each, and which belong to the first micro-batch, to a later one, to the update."""
        return self._kinds, self._parts

    def _live_bytes(self, shape: Shape, *, single: bool) -> npt.NDArray[np.float64]:
        sizes = self.template.sizes(shape)
        events = self._events_single if single else self._events_all
        return np.cumsum(np.where(events >= 0, sizes[events], -sizes[~events]))

    @cached_property
    def _events_all(self) -> npt.NDArray[np.int64]:
        return np.array(self.template.tape.events, dtype=np.int64)

    @cached_property
    def _events_single(self) -> npt.NDArray[np.int64]:
        return self._events_all[self._kept_single]

    @cached_property
    def _kept_single(self) -> npt.NDArray[np.int64]:
        """The events without the second micro-batch, and so without what only it would have left."""
        tape = self.template.tape
        if len(tape.parts) == 1:
            return np.arange(len(tape.events))
        left = {event for event in tape.part(1) if event >= 0}
        places = [*range(tape.parts[1]), *range(tape.update_from, len(tape.events))]
        events = tape.events
        return np.array([place for place in places if events[place] >= 0 or ~events[place] not in left], dtype=np.int64)

    @cached_property
    def _index_all(self) -> EventIndex:
        return EventIndex(self.template.tape, None)

    @cached_property
    def _index_single(self) -> EventIndex:
        return EventIndex(self.template.tape, self._kept_single)

    @cached_property
    def _kinds(self) -> npt.NDArray[np.int64]:
        return kinds_of(self.template.tape)

    @cached_property
    def _alike(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64], list[npt.NDArray[Any]]]:
        """Kernels without repetition, because those of a layer are its neighbours': FLOPs, bytes and calls as

        polynomials [3, kernel, term]; kinds; how many there are of each [kernel, 1]; and which belong to which part.
        """
        template = self.template
        costs = np.stack([template.kernel_flops, template.kernel_bytes, template.kernel_calls])
        rows = np.hstack([*costs, self._kinds[:, None], *(part[:, None] for part in self._parts)])
        first: dict[bytes, int] = {}
        counts: dict[bytes, int] = {}
        for number, row in enumerate(rows):
            key = row.tobytes()
            first.setdefault(key, number)
            counts[key] = counts.get(key, 0) + 1
        kept = np.array([*first.values()], dtype=np.int64)
        repeats = np.array([*counts.values()], dtype=np.int64)[:, None]
        return costs[:, kept], self._kinds[kept], repeats, [part[kept] for part in self._parts]

    @cached_property
    def _parts(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which kernels belong to the first micro-batch, the second, the update."""
        tape = self.template.tape
        span = np.array([kernel.span for kernel in tape.kernels])
        update = _span_at(tape, tape.update_from)
        if len(tape.parts) == 1:
            return span < update, span < update, span >= update
        second = _span_at(tape, tape.parts[1])
        return span < second, (span >= second) & (span < update), span >= update


class StepModel:
    """A step of any micro-batches: a template for each regime, traced when a shape of it is first needed."""

    def __init__(self, fake: FakeStep, first: Shape, *, of_one_shape: bool = False) -> None:
        """`of_one_shape`: traced at this very shape, which is one trace, and right for no other."""
        model = build_meta_model(fake.spec)
        self.batching = fake.batching
        self.sizes = ModelSizes.of(model, list(find_blocks(model, "a plan").values()))
        self._state_width = int(model.config.get_text_config(decoder=True).hidden_size)
        self._fake: FakeStep | None = fake
        self._spec, self._paths = fake.spec, find_paths(fake.spec, model)
        self._change: Callable[[Template], Template] | None = None
        self._models: dict[Regime, RegimeModel] = {}
        self._single: dict[Shape, RegimeModel] = {}  # of regimes that no template fits
        self._tapes: dict[tuple[Shape, ...], Tape] = {}
        self._replayed: dict[tuple[tuple[Shape, ...], ...], Memory] = {}  # where no capacity played a part
        self.only_shape = first if of_one_shape else None
        if of_one_shape:
            self._single[first] = self._fit([first], [self._trace(first)])
        self._first = self._of(first)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_fake": None, "_tapes": {}, "_replayed": {}}  # another process builds it when it needs it

    @property
    def template(self) -> Template:
        """Of the shape that it began with."""
        return self._first.template

    @property
    def gradient_bytes(self) -> int:
        return self.sizes.gradients

    @property
    def weight_bytes(self) -> int:
        """As the device stores them."""
        return sum(block.bytes for block in self.template.tape.blocks if block.category == WEIGHTS)

    @property
    def lasting_bytes(self) -> dict[str, int]:
        """Of what one GPU holds between steps."""
        blocks = self.template.tape.blocks
        return {name: sum(one.bytes for one in blocks if one.category == name) for name in (WEIGHTS, STATE)}

    @property
    def kept_bytes(self) -> int:
        """Weights, all gradients and the optimizer's state."""
        state = sum(block.bytes for block in self.template.tape.blocks if block.category == STATE)
        return self.weight_bytes + self.gradient_bytes + state

    def rank_work(self, steps: Sequence[Sequence[Shape]], step_seconds: float, rates: Rates) -> RankWork:
        """Of steps of these micro-batches, which take so long on average."""
        # The optimizer's kernels stream through all weights whatever the micro-batch.
        update_seconds = float(self._near(steps[0][0]).seconds([steps[0][0]], self._compiled(rates))[2, 0])
        # Blocks are sent as they are used; embeddings and heads in fp32, as one process looks up and sums in it.
        halves = self._halves
        first = max(steps[0], key=lambda shape: shape.real_tokens)
        return RankWork(
            batch_seconds=step_seconds - update_seconds,
            update_seconds=update_seconds,
            micro_batches=sum(map(len, steps)) / len(steps),
            weight_bytes=self.weight_bytes - (self.sizes.in_blocks // 2 if halves else 0),
            gradient_bytes=self.gradient_bytes,
            blocks=count_layers(self._spec.model_config.config) + 1,
            stored_weight_bytes=self.weight_bytes,
            schedule=self._near(first).schedule(first, rates, self.sizes, halves=halves),
            state_bytes=first.real_tokens * self._state_width * 4,
        )

    def curves(self, shape: Shape, *, single: bool) -> MemoryCurves:
        return self._of(shape).curves(shape, single=single, sizes=self.sizes.shard_sizes(halves=self._halves))

    @property
    def _halves(self) -> bool:
        return self._spec.precision == "bf16"

    def changed(self, change: Callable[[Template], Template]) -> StepModel:
        """The same with a rule for all templates, including those of later regimes."""
        other = copy.copy(self)
        other._change, other._replayed = change, {}
        other._models = {regime: _change(model, change) for regime, model in self._models.items()}
        other._single = {shape: _change(model, change) for shape, model in self._single.items()}
        other._first = _change(self._first, change)
        return other

    def find_model(self, shape: Shape) -> tuple[RegimeModel, Paths]:
        """Of the shape's regime, traced if it was not yet; and what decides the regime of other shapes."""
        return self._of(shape), self._paths

    def peak_bytes(self, shape: Shape, *, single: bool) -> int:
        return self._of(shape).peak_bytes(shape, single=single)

    def parts(self, shape: Shape, *, single: bool) -> dict[str, int]:
        return self._of(shape).parts(shape, single=single)

    def largest(self, steps: Sequence[Sequence[Shape]]) -> tuple[Shape, bool]:
        """The micro-batch that decides the peak, and whether it is the only one of its step.

        A regime costs two traces, so one that was not traced yet is estimated by a regime that was, and traced if
        that comes near the largest peak.
        """
        candidates = {(shape, len(step) == 1): None for step in steps for shape in step}
        likely = sorted(candidates, key=lambda item: -item[0].real_tokens)[:_LIKELY]
        likely += sorted(candidates, key=lambda item: -max(item[0].sources))[:_LIKELY]
        likely += sorted(candidates, key=lambda item: -max(item[0].targets or (0,)))[:_LIKELY]
        while True:
            check_time_limit()
            peaks = [self._near(shape).peak_bytes(shape, single=single) for shape, single in likely]
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
        """Of each step, with its micro-batches. A regime that was not traced takes the time of a similar one."""
        rates = self._compiled(rates)
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
        """Steps one after the other on the device's allocator; once for all GPUs of the same rules that have room."""
        decisive, _ = self.largest(steps)
        if decisive not in self._single and find_regime(decisive, self._paths) not in self._models:
            self._trace_regime(decisive)
        key = tuple(map(tuple, steps))
        known = self._replayed.get(key)
        if known is None or (capacity_bytes is not None and known.reserved_bytes + context_bytes > capacity_bytes):
            tapes = {shape: self._near(shape).template.at(shape) for shape in {shape for step in key for shape in step}}
            sized = [[tapes[shape] for shape in step] for step in key]
            known = measure_steps(sized, rules, context_bytes=context_bytes, capacity_bytes=capacity_bytes)
            if known.out_of_memory is None and known.cache_releases == 0:
                self._replayed[key] = known
        return replace(known, context_bytes=context_bytes)

    def _compiled(self, rates: Rates) -> Rates:
        return rates.compiled if self._spec.strategy.compile else rates

    def _find_regime(self, shape: Shape) -> Regime:
        """For a single example torch only takes shortcuts: where only several are known, they bound it."""
        regime = find_regime(shape, self._paths)
        several = replace(regime, is_one=False)
        return several if several in self._models and regime not in self._models else regime

    def _of(self, shape: Shape) -> RegimeModel:
        return self._single.get(shape) or self._models.get(self._find_regime(shape)) or self._trace_regime(shape)

    def _trace_regime(self, shape: Shape) -> RegimeModel:
        check_time_limit()
        regime = find_regime(shape, self._paths)
        shapes = choose_traced(shape, self._paths)
        tapes = [self._trace(other) for other in shapes]
        try:
            self._models[regime] = model = self._fit(shapes, tapes)
        except DifferentPaths:  # no two shapes of the regime run the same operations: this template holds only for one
            self._single[shape] = model = self._fit([shape], [self._trace(shape)])
        return model

    def trace(self, shapes: Sequence[Shape]) -> Tape:
        """Of exactly these micro-batches; once, because the same strategy is often the best on several GPUs."""
        key = tuple(shapes)
        if key not in self._tapes:
            self._tapes[key] = self._trace_step(shapes)
        return self._tapes[key]

    def _trace_step(self, shapes: Sequence[Shape]) -> Tape:
        self._fake = self._fake or FakeStep(self._spec)
        return self._fake.trace(shapes)

    def _trace(self, shape: Shape) -> Tape:
        return self._trace_step([shape] * (1 if self._spec.strategy.optimizer_in_backward else 2))

    def _fit(self, shapes: Sequence[Shape], tapes: Sequence[Tape]) -> RegimeModel:
        template = fit_template(shapes, tapes, self._paths)
        return RegimeModel(template if self._change is None else self._change(template), self.gradient_bytes)

    def _is_traced(self, shape: Shape) -> bool:
        return self._find_regime(shape) in self._models or shape in self._single

    def _near(self, shape: Shape) -> RegimeModel:
        """The model of the shape's regime, else of the one that has most in common with it."""
        if shape in self._single:
            return self._single[shape]
        regime = self._find_regime(shape)
        if regime in self._models:
            return self._models[regime]
        return self._models[max(self._models, key=partial(_count_common, regime))] if self._models else self._first

    def _slack(self, shape: Shape) -> float:
        """How much more a shape may need than a traced regime says."""
        regime = find_regime(shape, self._paths)
        is_like_one = any(replace(known, is_one=regime.is_one) == regime for known in self._models)
        return 1.0 if is_like_one else _OTHER_PATH


def _change(model: RegimeModel, change: Callable[[Template], Template]) -> RegimeModel:
    return RegimeModel(change(model.template), model.gradient_bytes)


def _count_common(regime: Regime, other: Regime) -> int:
    return sum(getattr(regime, name) == getattr(other, name) for name in ("encoder", "decoder", "cross", "is_one"))


def count_layers(config: PreTrainedConfig) -> int:
    """Of encoder and decoder together."""
    return sum(family_of(config).count_layers(config))


def find_paths(spec: StepSpec, model: PreTrainedModel) -> Paths:
    above = choose_blockwise_above(spec.strategy.attention, spec.device)
    is_chunked = spec.strategy.loss == "chunked" and spec.model.kind != "classifier"
    head = family_of(model).head(model) if is_chunked else None
    return Paths(above, None if head is None else len(head.weight_VD))


def model_step(fake: FakeStep, steps: Sequence[Sequence[Shape]], *, of_one_shape: bool = False) -> StepModel:
    """Trace a step at a few examples of its largest micro-batch; or at that micro-batch, as it is, only."""
    shapes = [shape for step in steps for shape in step]
    if of_one_shape:
        return StepModel(fake, max(shapes, key=lambda shape: shape.real_tokens), of_one_shape=True)
    largest = max(shapes, key=lambda shape: (max(shape.sources), shape.real_tokens))
    return StepModel(fake, largest)


def _span_at(tape: Tape, event: int) -> int:
    return next((number for number, span in enumerate(tape.spans) if span.first_event >= event), len(tape.spans))
