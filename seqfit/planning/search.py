"""Finds the fastest strategy that fits, traced in two processes, and says why the others are not it.

Finds the fastest way of training that fits, and says why the others are not it.

In: a `Question` (model, recipe, what a run feeds it, the target). Out: a `Plan`. Each variant is traced at two or three
small shapes and becomes a function of the micro-batch; micro-batch sizes are then tried in milliseconds. What is
chosen is traced once more at its largest micro-batch, and on a GPU replayed on the allocator with the capacity of the
card: the polynomials propose, the trace decides.

Traces of several variants at a time: some in this process, some in one beside it.

Tracing is Python's work, one core's, and takes seconds for a model of many layers; so a search with many variants has a
second process take them from the other end of the list.

    variants to trace    a b c d e f g
    here                 a b c d ->
    beside                     <- e f g        (it begins later, for it has torch to import first)

The other process is given what it needs by pickle through its standard input, as its answers come back: both ends are
this program.
"""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from seqfit.data.batching import Batching, MicroBatchRule
from seqfit.errors import PlanError, describe_error, describe_exit
from seqfit.model.load import ModelConfig
from seqfit.parallel.build import PaddingLimits, build_rule
from seqfit.planning.candidates import (
    Refusal,
    Variant,
    build_variant,
    find_open_layouts,
    find_refusals,
    lay_out_strategy,
    list_variants,
)
from seqfit.planning.cluster import DATAPARALLEL, ONE_GPU, LayoutCost, memory_change, step_seconds
from seqfit.planning.eight_bit import shrink_model, shrink_tape
from seqfit.planning.fake_step import FakeStep, TracedModel, build_meta_model
from seqfit.planning.memory import Anatomy, Memory, explain_tape, measure_steps
from seqfit.planning.rank_work import build_work, count_layers, sum_weight_bytes
from seqfit.planning.shape import Workload
from seqfit.planning.step_model import StepModel, model_step
from seqfit.planning.tape import Tape
from seqfit.planning.target import Target
from seqfit.planning.timing import check_time_limit
from seqfit.progress import Progress
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy
from seqfit.system import usable_cores
from seqfit.units import format_bytes, format_seconds

_LEAST_PATIENCE_SECONDS = 10.0
WORTH_IT = 4  # variants; with fewer, the other process would hardly have begun

Q = TypeVar("Q")
V = TypeVar("V")
M = TypeVar("M")


class Tracers(Generic[Q, V, M]):
    """Traces variants of one question; `trace` is what the other process does, too."""

    def __init__(self, question: Q, trace: Callable[[Q, V], M], *, beside: bool) -> None:
        self._question = question
        self._trace = trace
        self._may_start = beside and usable_cores() > 1
        self._beside: subprocess.Popen[bytes] | None = None
        self._said = False  # that it hangs
        self.events: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def trace(self, variants: Sequence[V], tell: Callable[[], None]) -> dict[V, M]:
        """All of them; `tell` is called as each is done."""
        waiting, done = deque(variants), dict[V, M]()
        thread = None
        if self._may_start and len(variants) >= WORTH_IT:
            thread = threading.Thread(target=self._trace_beside, args=(waiting, done), daemon=True)
            thread.start()
        longest_seconds = 0.0
        try:
            while waiting:
                variant, started = waiting.popleft(), time.monotonic()
                done[variant] = self._trace(self._question, variant)
                longest_seconds = max(longest_seconds, time.monotonic() - started)
                tell()
        finally:
            waiting.clear()
            if thread is not None:
                self._wait_for(thread, longest_seconds)
        for variant in variants:  # what the other process began and did not bring to an end
            if variant not in done:
                done[variant] = self._trace(self._question, variant)
        return {variant: done[variant] for variant in variants}

    def _wait_for(self, thread: threading.Thread, longest_seconds: float) -> None:
        """For what the other process has begun, as long as a few traces take here: one that hangs is ended."""
        patience = _LEAST_PATIENCE_SECONDS + 3 * longest_seconds
        thread.join(patience)
        if thread.is_alive():
            self.events.append(f"a second process that traces did not answer within {patience:.0f} s and was killed")
            self._said = True
            self._end()
            thread.join()

    def _trace_beside(self, waiting: deque[V], done: dict[V, M]) -> None:
        try:
            beside = self._start()
            assert beside.stdin is not None
            assert beside.stdout is not None
            while waiting:
                variant = waiting.pop()
                pickle.dump(variant, beside.stdin)
                beside.stdin.flush()
                done[variant] = pickle.load(beside.stdout)
        except IndexError:  # the list was used up in the meantime
            return
        except Exception as error:  # whatever comes out of a pipe from a process that fails
            if not self._said:
                self.events.append(f"a second process that traces could not go on: {self._find_cause(error)}")

    def _find_cause(self, error: Exception) -> str:
        """How the process ended, where it did: its pipe only says that it is closed."""
        try:
            code = None if self._beside is None else self._beside.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        return describe_error(error) if code in (None, 0) else f"it {describe_exit(int(code or 0))}"

    def _start(self) -> subprocess.Popen[bytes]:
        if self._beside is None:
            self._beside = subprocess.Popen(
                [sys.executable, "-m", "seqfit.planning.trace_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            assert self._beside.stdin is not None
            pickle.dump(self._question, self._beside.stdin)
        return self._beside

    def _end(self) -> None:
        """Whatever it is doing: nobody waits for it."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.kill()
            beside.communicate()


_SMALLEST_BUDGET, _LARGEST_BUDGET = 512, 131_072  # tokens of a micro-batch
_HOST_BYTES = 600 * 2**20  # of a Python process with torch and transformers on a CPU, before the model
_MARGIN = 1.04  # what the allocator adds before it is replayed
_REPLAYED_STEPS = 24
_MANY_LAYERS = 12
_EQUALLY_FAST = 0.02  # no prediction is better than that


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is asked for."""

    outline: ModelConfig
    model: ModelRecipe
    train: TrainRecipe
    allow: tuple[str, ...]
    fixed: Mapping[str, Any]  # strategy fields that the recipe states
    workload: Workload
    target: Target
    limits: PaddingLimits = (None, None)  # what max_length pads to
    kept_words: int | None = None
    spreads: tuple[LayoutCost, ...] = (ONE_GPU,)


@dataclass(frozen=True)
class PlanCandidate:
    """One way of training with one size of micro-batch."""

    variant: Variant
    strategy: Strategy
    spread: LayoutCost
    total_bytes: int
    step_seconds: float
    micro_batches: float  # a step, on average
    capacity_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the device holds it."""
        return self.total_bytes <= self.capacity_bytes


@dataclass(frozen=True)
class Plan:
    """The answer."""

    chosen: PlanCandidate | None
    memory: Memory | None  # of the chosen one, verified
    anatomy: Anatomy | None
    front: list[PlanCandidate]  # no other is both faster and smaller
    best_of_each: list[PlanCandidate]  # of each variant and spread, the fastest that fits, or the smallest
    refusals: list[Refusal]
    real_tokens: float  # a step, on average
    total_steps: int
    rates_source: str
    events: list[str] = field(default_factory=list)


def search(question: PlanRequest, progress: Progress = lambda *_: None) -> Plan:
    """Trace the variants, try micro-batches, verify the fastest that fits."""
    variants, refusals = _list_variants(question)
    spreads, closed = _open_spreads(question, variants)
    models: dict[Variant, StepModel] = {}
    candidates: list[PlanCandidate] = []
    with _build_tracers(question) as tracers:
        for precision in dict.fromkeys(variant.precision for variant in variants):
            wanted = [v for v in variants if v.precision == precision and not _is_pointless(v, candidates)]
            traced = list(dict.fromkeys(variant.traced for variant in wanted))
            known = tracers.trace(traced, lambda: progress("planning", len(models), len(variants)))
            for variant in wanted:
                models[variant] = known[variant] if variant in known else shrink_model(known[variant.traced])
                candidates += _try_budgets(question, variant, models[variant], spreads[variant])
            progress("planning", len(models), len(variants))
        progress("planning", len(variants), len(variants))
        chosen, memory, tape, events = _verify(question, models, candidates)
    steps = question.workload.sample()
    usable = [candidate for candidate in candidates if candidate.spread.way != DATAPARALLEL]
    return Plan(
        chosen=chosen,
        memory=memory,
        anatomy=None if tape is None else explain_tape(tape),
        front=pareto_front(usable),
        best_of_each=_best_of_each(usable),
        refusals=[*refusals, *closed, *_recall_dataparallel(candidates)],
        real_tokens=question.workload.real_tokens(steps) / len(steps),
        total_steps=question.workload.total_steps,
        rates_source=question.target.rates(variants[0].precision).source,
        events=[*tracers.events, *events, *_warn(chosen)],
    )


def _open_spreads(
    question: PlanRequest, variants: Sequence[Variant]
) -> tuple[dict[Variant, list[LayoutCost]], list[Refusal]]:
    is_cut = any(spread.way == "pipeline" for spread in question.spreads)
    model = build_meta_model(_subject(question, variants[0])) if is_cut else None
    return find_open_layouts(variants, question.spreads, question.train, model)


def _recall_dataparallel(candidates: Sequence[PlanCandidate]) -> Iterator[Refusal]:
    """What the plainest variant took by it, for figures of old: nothing trains so any more."""
    taken = _best_of_each([candidate for candidate in candidates if candidate.spread.way == DATAPARALLEL])
    for candidate in taken[:1]:
        takes = f"{format_bytes(candidate.total_bytes)} and {format_seconds(candidate.step_seconds)} a step"
        why = f"torch's nn.DataParallel, which training does not have; {candidate.variant.label} by it: {takes}"
        yield Refusal(str(candidate.spread), why)


def _warn(chosen: PlanCandidate | None) -> Iterator[str]:
    if chosen is not None and chosen.strategy.optimizer_in_backward:
        yield (
            "Weights are updated in the backward, so a step that runs out of memory leaves some of them updated: such "
            "a run goes back to its last snapshot, not to the beginning of the step"
        )
    if chosen is not None and chosen.strategy.optimizer == "8bit":
        yield "8-bit AdamW is predicted by rule; it needs bitsandbytes or torchao where it is trained"


def _build_tracers(question: PlanRequest) -> Tracers[PlanRequest, Variant, StepModel]:
    """A second process pays for models of many layers."""
    return Tracers(question, trace_variant, beside=count_layers(question.outline.config) >= _MANY_LAYERS)


def predict_strategy(question: PlanRequest, strategy: Strategy, precision: str) -> tuple[Memory, Tape, float]:
    """Memory (verified), tape and seconds of one given strategy."""
    variant, model, seconds = _predict(question, strategy, precision)
    memory, tape = _measure(question, variant, model, strategy)
    return memory, tape, seconds


def predict_strategy_quickly(question: PlanRequest, strategy: Strategy, precision: str) -> tuple[Memory, float]:
    """The same from the polynomials alone."""
    _, model, seconds = _predict(question, strategy, precision)
    return _estimate(question, model, strategy), seconds


def _predict(question: PlanRequest, strategy: Strategy, precision: str) -> tuple[Variant, StepModel, float]:
    check_precision(question.target, precision)
    variant = build_variant(strategy, precision)
    model = _model(question, variant)
    rule = _rule(question, strategy, model.batching)
    steps = question.workload.cut(rule, question.workload.sample())
    return variant, model, float(model.step_seconds(steps, question.target.rates(precision)).mean())


def check_precision(target: Target, precision: str) -> None:
    """As training refuses it."""
    if precision == "bf16" and target.kind == "gpu" and not target.has_bf16:
        raise PlanError(
            f"strategy.precision is 'bf16' on {target.name}",
            "this card has no bf16 in hardware",
            "Set strategy.precision=fp32 or auto, or name a card that has it (--gpu)",
        )


def pareto_front(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """From the fastest to the smallest; each is smaller than all faster ones."""
    front: list[PlanCandidate] = []
    for candidate in sorted(candidates, key=lambda item: (item.step_seconds, item.total_bytes)):
        if not front or candidate.total_bytes < front[-1].total_bytes * 0.99:
            front.append(candidate)
    return front


def search_quickly(question: PlanRequest, spreads: Sequence[LayoutCost] = ()) -> tuple[Strategy, Memory, float] | None:
    """The first variant, plainest first, that fits at all: strategy, memory and seconds. For a run that is to start.

    All figures are of one device; `spreads` are ways that the strategy has to be open to as well.
    """
    for variant in _list_variants(replace(question, kept_words=None))[0]:  # trimming is the recipe's to state
        if variant.traced != variant:  # 8 bits need a package: they are the user's to ask for
            continue
        if any(find_refusals(variant.strategy, spread, question.train) for spread in spreads):
            continue
        model = _model(question, variant)
        candidates = _try_budgets(question, variant, model, [ONE_GPU])
        for candidate in _in_order([candidate for candidate in candidates if candidate.fits]):
            memory = _estimate(question, model, candidate.strategy)
            if memory.out_of_memory is None:
                return candidate.strategy, memory, candidate.step_seconds
    return None


def _list_variants(question: PlanRequest) -> tuple[list[Variant], list[Refusal]]:
    target, workload = question.target, question.workload
    return list_variants(
        question.model,
        question.train,
        question.allow,
        question.fixed,
        on_gpu=target.kind == "gpu",
        has_bf16=target.has_bf16,
        kept_words=question.kept_words,
        longest=int(max(workload.source_lengths.max(), workload.target_lengths.max())),
    )


def _is_pointless(variant: Variant, candidates: Sequence[PlanCandidate]) -> bool:
    """fp32 beside a half precision that fits is slower and larger: the plainest of it is enough to show."""
    halves = [candidate for candidate in candidates if candidate.variant.precision != "fp32" and candidate.fits]
    chosen = dict(variant.fields).keys() & {"recompute", "attention", "optimizer_in_backward"}
    return bool(halves) and variant.precision == "fp32" and bool(chosen)


def _model(question: PlanRequest, variant: Variant) -> StepModel:
    """Traced, or derived from the trace of another."""
    model = trace_variant(question, variant.traced)
    return model if variant == variant.traced else shrink_model(model)


def trace_variant(question: PlanRequest, variant: Variant) -> StepModel:
    """Its step at a few shapes, as a function of the shape."""
    fake = FakeStep(_subject(question, variant))
    rule = _rule(question, variant.strategy, fake.batching)
    steps = question.workload.cut(rule, question.workload.largest())
    return model_step(fake, steps)


def _subject(question: PlanRequest, variant: Variant) -> TracedModel:
    outline = question.outline
    if variant.vocabulary is not None:
        outline = replace(outline, config=copy.deepcopy(outline.config))
        outline.config.vocab_size = variant.vocabulary
    strategy = variant.traced.strategy
    return TracedModel(outline, question.model, question.train, strategy, variant.precision, question.target.rules)


def _rule(question: PlanRequest, strategy: Strategy, batching: Batching) -> MicroBatchRule:
    return build_rule(strategy, batching, question.limits)


def _try_budgets(
    question: PlanRequest, variant: Variant, model: StepModel, spreads: Sequence[LayoutCost]
) -> Iterator[PlanCandidate]:
    target, workload = question.target, question.workload
    rates = target.rates(variant.precision)
    layers, weight_bytes = count_layers(question.outline.config), sum_weight_bytes(model)
    sampled = workload.sample()
    for budget in _budgets(question):
        check_time_limit()
        strategy = variant.strategy.model_copy(update={"micro_batch_tokens": budget})
        steps = workload.cut(_rule(question, strategy, model.batching), sampled)
        shape, alone = model.largest(steps)
        peak_bytes = model.peak_bytes(shape, alone=alone)
        parts = model.parts(shape, alone=alone)
        seconds = float(model.step_seconds(steps, rates).mean())
        work = build_work(model, steps, seconds, rates, precision=variant.precision, layers=layers)
        for spread in spreads:
            change = memory_change(spread, parts, model.largest_block_bytes, model.gradient_bytes)
            yield PlanCandidate(
                variant,
                lay_out_strategy(strategy, spread),
                spread,
                _total_bytes(target, peak_bytes + change),
                work.step_seconds if target.card is None else step_seconds(spread, work, weight_bytes, target.card),
                work.micro_batches,
                target.capacity_bytes,
            )


def _budgets(question: PlanRequest) -> list[int]:
    asked = question.fixed.get("micro_batch_tokens")
    if asked is not None:
        return [int(asked)]
    workload = question.workload
    most = max(workload.real_tokens([step]) for step in workload.largest())
    longest = int((workload.source_lengths + workload.target_lengths).max())
    budgets = [_SMALLEST_BUDGET]
    while budgets[0] < longest:  # a smaller one would be cut no further
        budgets[0] *= 2
    while budgets[-1] < min(most, _LARGEST_BUDGET):
        budgets.append(budgets[-1] * 3 // 2 if budgets[-1] & (budgets[-1] - 1) == 0 else budgets[-1] * 4 // 3)
    return budgets


def _total_bytes(target: Target, peak_bytes: int) -> int:
    if target.kind == "cpu":
        return peak_bytes + _HOST_BYTES
    return int(peak_bytes * _MARGIN) + 2 * target.rules.workspace_bytes + target.context_bytes


def _verify(
    question: PlanRequest, models: Mapping[Variant, StepModel], candidates: Sequence[PlanCandidate]
) -> tuple[PlanCandidate | None, Memory | None, Tape | None, list[str]]:
    """The fastest that fits also when traced at its largest micro-batch and replayed."""
    events: list[str] = []
    usable = [candidate for candidate in candidates if candidate.fits and candidate.spread == ONE_GPU]
    for candidate in _in_order(usable)[:6]:
        memory, tape = _measure(question, candidate.variant, models[candidate.variant], candidate.strategy)
        total = memory.total_bytes + (_HOST_BYTES if question.target.kind == "cpu" else 0)
        if memory.out_of_memory is None and total <= question.target.capacity_bytes:
            return replace(candidate, total_bytes=total), memory, tape, events
        events.append(
            f"{candidate.variant.label}, micro-batches of {candidate.strategy.micro_batch_tokens} tokens: looked as if "
            f"it fitted, but takes {format_bytes(total)} once its pieces are laid out in memory"
        )
    return None, None, None, events


def _in_order(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """The fastest first; of those that are as good as equally fast the largest micro-batches within half of the memory.

    For predictions know little of what many small ones cost. Beyond that half, the smallest memory.
    """
    fastest = min((candidate.step_seconds for candidate in candidates), default=0.0)

    def rank(item: PlanCandidate) -> tuple[float, ...]:
        if item.step_seconds > fastest * (1 + _EQUALLY_FAST):
            return 2, item.step_seconds, item.total_bytes
        if item.total_bytes > item.capacity_bytes / 2:
            return 1, item.total_bytes
        return 0, -item.strategy.micro_batch_tokens, item.step_seconds

    return sorted(candidates, key=rank)


def _measure(question: PlanRequest, variant: Variant, model: StepModel, strategy: Strategy) -> tuple[Memory, Tape]:
    target, workload = question.target, question.workload
    steps = workload.cut(_rule(question, strategy, model.batching), workload.sample())
    shape, alone = model.largest(steps)
    tape = FakeStep(_subject(question, variant)).trace([shape] if alone else [shape, shape])
    if variant.traced != variant:
        tape = shrink_tape(tape)
    if target.kind == "cpu":
        return measure_steps([[tape]], target.rules), tape
    return _estimate(question, model, strategy), tape


def _estimate(question: PlanRequest, model: StepModel, strategy: Strategy) -> Memory:
    """From the polynomials: the largest micro-batch; on a GPU many steps, laid out by its allocator."""
    target, workload = question.target, question.workload
    steps = workload.cut(_rule(question, strategy, model.batching), workload.sample())
    if target.kind == "cpu":
        shape, alone = model.largest(steps)
        peak_bytes = model.peak_bytes(shape, alone=alone)
        return Memory(peak_bytes, peak_bytes, 0, model.parts(shape, alone=alone))
    replayed = [*steps[:_REPLAYED_STEPS], *steps[-2:]]
    return model.measure(replayed, target.rules, target.context_bytes, target.capacity_bytes)


def _best_of_each(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    groups: dict[tuple[Variant, LayoutCost], list[PlanCandidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.variant, candidate.spread), []).append(candidate)
    return [
        min([c for c in group if c.fits], key=lambda c: c.step_seconds)
        if any(c.fits for c in group)
        else min(group, key=lambda c: c.total_bytes)
        for group in groups.values()
    ]
