"""Finds the fastest strategy that fits, and says why the others were not chosen.

In: a `PlanRequest` (model, recipe, what a run feeds it, the target). Out: a `Plan`. Each variant is traced at two or
three small shapes and becomes a function of the micro-batch; micro-batch sizes are then tried in milliseconds. What is
chosen is traced once more at its largest micro-batch, and on a GPU replayed on the allocator with the GPU's capacity:
the polynomials propose, the trace decides.

Tracing is Python on one core and takes seconds for a model of many layers, so a search with many variants has a second
process take them from the other end of the list:

    variants to trace    a b c d e f g
    this process         a b c d ->
    the second one             <- e f g        (it starts later: it has torch to import first)

They pass pickles through pipes. A ProcessPoolExecutor would have to spawn (torch has threads), which imports the
caller's main module in the worker: a script that calls seqfit.plan() outside of `if __name__ == "__main__"` would run
from its beginning a second time.
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from seqfit.errors import PlanError, describe_error, describe_exit
from seqfit.model import ModelConfig
from seqfit.parallel import PaddingLimits, build_rule
from seqfit.planning.candidates import Variant, build_variant, find_open_layouts, find_refusals, list_variants
from seqfit.planning.cluster import DATAPARALLEL, ONE_GPU, GpuLayout, Link, build_card_link
from seqfit.planning.device_rules import DeviceRules
from seqfit.planning.evaluation_cost import EvaluationModel, Evaluations, add_lasting
from seqfit.planning.fake_step import FakeStep, StepSpec, build_meta_model
from seqfit.planning.memory import Memory, explain_peak, measure_steps
from seqfit.planning.ranks import (
    NCCL_BYTES,
    RankRows,
    RankShare,
    count_shares,
    explain_rank,
    predict_ranks,
)
from seqfit.planning.report import PeakBreakdown, Refusal
from seqfit.planning.shape import Shape, Workload
from seqfit.planning.step_model import StepModel, count_layers, model_step
from seqfit.planning.tape import Tape
from seqfit.planning.target import Target
from seqfit.planning.template import shrink_tape, shrink_template
from seqfit.planning.timing import check_time_limit
from seqfit.progress import Progress
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.strategy import Batching, Strategy
from seqfit.system import usable_cores
from seqfit.units import format_bytes, format_seconds

SERVE_TRACES = "from seqfit.planning.search import serve_traces; serve_traces()"  # what the second process runs
_LEAST_PATIENCE_SECONDS = 10.0
WORTH_IT = 4  # variants; with fewer, the second process would hardly have started
_SMALLEST_BUDGET, _LARGEST_BUDGET = 512, 131_072  # tokens per micro-batch
_HOST_BYTES = 600 * 2**20  # of a Python process with torch and transformers on a CPU, before the model
_MARGIN = 1.04  # what the allocator adds before it is replayed
_REPLAYED_STEPS = 24
_EQUALLY_FAST = 0.02  # no prediction is better than that
_EAGER = "attention", "eager"


class Tracers:
    """Traces variants of one request; the second process runs the same `trace`."""

    def __init__(
        self, request: PlanRequest, trace: Callable[[PlanRequest, Variant], StepModel], *, second_process: bool
    ) -> None:
        self._request = request
        self._trace = trace
        self._may_start = second_process and usable_cores() > 1
        self._second: subprocess.Popen[bytes] | None = None
        self._timed_out = False
        self.events: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def trace(
        self, variants: Sequence[Variant], after_each: Callable[[Variant, StepModel], None]
    ) -> dict[Variant, StepModel]:
        waiting, done = deque(variants), dict[Variant, StepModel]()
        thread = None
        if self._may_start and len(variants) >= WORTH_IT:
            thread = threading.Thread(target=self._trace_in_second, args=(waiting, done), daemon=True)
            thread.start()
        longest_seconds = 0.0
        try:
            while waiting:
                variant, started = waiting.popleft(), time.monotonic()
                done[variant] = self._trace(self._request, variant)
                longest_seconds = max(longest_seconds, time.monotonic() - started)
                after_each(variant, done[variant])
        finally:
            waiting.clear()
            if thread is not None:
                self._wait_for(thread, longest_seconds)
        for variant in variants:  # what the second process started and did not finish
            if variant not in done:
                done[variant] = self._trace(self._request, variant)
        return {variant: done[variant] for variant in variants}

    def _wait_for(self, thread: threading.Thread, longest_seconds: float) -> None:
        """For what the second process has started, as long as a few traces take here; one that hangs is killed."""
        patience = _LEAST_PATIENCE_SECONDS + 3 * longest_seconds
        thread.join(patience)
        if thread.is_alive():
            self.events.append(f"the second tracing process did not respond within {patience:.0f} s and was killed")
            self._timed_out = True
            self._end()
            thread.join()

    def _trace_in_second(self, waiting: deque[Variant], done: dict[Variant, StepModel]) -> None:
        try:
            second = self._start()
            assert second.stdin is not None
            assert second.stdout is not None
            while waiting:
                variant = waiting.pop()
                pickle.dump(variant, second.stdin)
                second.stdin.flush()
                done[variant] = pickle.load(second.stdout)
        except IndexError:  # the list was used up in the meantime
            return
        except Exception as error:  # whatever comes out of a pipe from a process that fails
            if not self._timed_out:
                self.events.append(f"the second tracing process failed: {self._find_cause(error)}")

    def _find_cause(self, error: Exception) -> str:
        """How the process ended, where it did: its pipe only says that it is closed."""
        try:
            code = None if self._second is None else self._second.wait(1.0)
        except subprocess.TimeoutExpired:
            code = None
        return describe_error(error) if code in (None, 0) else f"it {describe_exit(int(code or 0))}"

    def _start(self) -> subprocess.Popen[bytes]:
        if self._second is None:
            self._second = subprocess.Popen(
                [sys.executable, "-c", SERVE_TRACES],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            assert self._second.stdin is not None
            pickle.dump(self._request, self._second.stdin)
        return self._second

    def _end(self) -> None:
        second, self._second = self._second, None
        if second is not None:
            second.kill()
            second.communicate()


def serve_traces() -> None:
    """The second process: a request and variants come in as pickles, step models go out, until standard input ends."""
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints must not get between the pickles
    request = pickle.load(sys.stdin.buffer)
    while True:
        try:
            variant = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(trace_variant(request, variant), output)
        output.flush()


@dataclass(frozen=True)
class PlanRequest:
    model_config: ModelConfig
    model: ModelRecipe
    train: TrainRecipe
    allow: tuple[str, ...]
    fixed: Mapping[str, Any]  # strategy fields that the recipe states
    workload: Workload
    target: Target
    limits: PaddingLimits = (None, None)  # what max_length pads to
    kept_tokens: int | None = None  # of the vocabulary, where trimming is allowed
    layouts: tuple[GpuLayout, ...] = (ONE_GPU,)
    evaluations: Evaluations | None = None  # during training

    def split(
        self, strategy: Strategy, batching: Batching, steps: Sequence[npt.NDArray[np.int64]]
    ) -> list[list[Shape]]:
        return self.workload.split(build_rule(strategy, batching, self.limits), steps)


@dataclass(frozen=True)
class PlanCandidate:
    variant: Variant
    strategy: Strategy
    layout: GpuLayout
    total_bytes: int
    step_seconds: float
    micro_batches: float  # per step, on average
    capacity_bytes: int
    evaluation_bytes: int = 0  # which the total is at least
    evaluation_seconds: float = 0.0  # of one evaluation

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.capacity_bytes


@dataclass(frozen=True)
class Evaluated:
    """An evaluation on one device."""

    total_bytes: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    chosen: PlanCandidate | None  # verified
    peak: PeakBreakdown | None  # of the chosen one
    shared_peak: PeakBreakdown | None  # of the fastest on several GPUs that fits
    front: list[PlanCandidate]  # Pareto-optimal: no other is both faster and smaller
    best_of_each: list[PlanCandidate]  # of each variant and layout, the fastest that fits, or the smallest
    refusals: list[Refusal]
    real_tokens: float  # per step, on average
    total_steps: int
    rates_source: str
    events: list[str] = field(default_factory=list)


Traces = dict[tuple[DeviceRules, Variant], StepModel]


def search(
    request: PlanRequest,
    progress: Progress = lambda *_: None,
    *,
    traces: Traces | None = None,
    verify: bool = True,
    report_first: Callable[[PlanCandidate], None] | None = None,
) -> Plan:
    """`traces`: of searches for the same model and data, found there and added; without `verify` nothing is chosen.

    `report_first` is called with the best of the first variant, the plainest, when that has been traced.
    """
    traces = {} if traces is None else traces
    variants, refusals = _list_variants(request)
    has_pipeline = any(layout.parallel == "pipeline" for layout in request.layouts)
    model = build_meta_model(_build_spec(request, variants[0])) if has_pipeline else None
    layouts, closed = find_open_layouts(variants, request.layouts, request.train, model)
    models: dict[Variant, StepModel] = {}
    candidates: list[PlanCandidate] = []

    def after_each(variant: Variant, model: StepModel) -> None:
        progress("planning", len(models), len(variants))
        if report_first is not None and variant == variants[0]:
            report_first(_best_of_each(list(_try_budgets(request, variant, model, [ONE_GPU])))[0])

    is_large = count_layers(request.model_config.config) >= 12  # for fewer a second process does not pay off
    with Tracers(request, trace_variant, second_process=is_large) as tracers:
        for precision in dict.fromkeys(variant.precision for variant in variants):
            wanted = [v for v in variants if v.precision == precision and not _is_pointless(v, candidates)]
            traced = list(dict.fromkeys(variant.traced for variant in wanted))
            rules = request.target.rules
            new = [variant for variant in traced if (rules, variant) not in traces]
            done = tracers.trace(new, after_each)
            traces.update({(rules, variant): model for variant, model in done.items()})
            known = {variant: traces[rules, variant] for variant in traced}
            for variant in wanted:
                models[variant] = known[variant] if variant in known else known[variant.traced].changed(shrink_template)
                candidates += _try_budgets(request, variant, models[variant], layouts[variant])
            progress("planning", len(models), len(variants))
        progress("planning", len(variants), len(variants))
        chosen, peak, events = _verify(request, models, candidates) if verify else (None, None, [])
    steps = request.workload.sample()
    usable = [candidate for candidate in candidates if candidate.layout.parallel != DATAPARALLEL]
    return Plan(
        chosen=chosen,
        peak=peak,
        shared_peak=_explain_shared(request, models, usable) if verify else None,
        front=pareto_front(usable),
        best_of_each=_best_of_each(usable),
        refusals=[*refusals, *closed, *_report_dataparallel(candidates)],
        real_tokens=request.workload.real_tokens(steps) / len(steps),
        total_steps=request.workload.total_steps,
        rates_source=request.target.rates(variants[0].precision).source,
        events=[*tracers.events, *events, *_warn(chosen)],
    )


def _report_dataparallel(candidates: Sequence[PlanCandidate]) -> Iterator[Refusal]:
    """What the plainest variant would need with it, to compare with published figures."""
    found = _best_of_each([candidate for candidate in candidates if candidate.layout.parallel == DATAPARALLEL])
    for candidate in found[:1]:
        needs = f"{format_bytes(candidate.total_bytes)} and {format_seconds(candidate.step_seconds)} per step"
        why = f"torch's nn.DataParallel, which seqfit does not offer; {candidate.variant.label} would need {needs}"
        yield Refusal(str(candidate.layout), why)


def _warn(chosen: PlanCandidate | None) -> Iterator[str]:
    if chosen is not None and chosen.strategy.optimizer_in_backward:
        yield (
            "Weights are updated in the backward pass, so a step that runs out of memory leaves some of them updated: "
            "such a run goes back to its last snapshot, not to the beginning of the step"
        )
    if chosen is not None and chosen.strategy.optimizer == "8bit":
        yield "8-bit AdamW is predicted by a rule; training with it needs bitsandbytes or torchao"


def predict_strategy(request: PlanRequest, strategy: Strategy, precision: str) -> tuple[Memory, Tape, float]:
    variant, model, seconds = _predict(request, strategy, precision)
    memory, tape = _measure(request, variant, model, strategy)
    return memory, tape, seconds


def predict_strategy_quickly(request: PlanRequest, strategy: Strategy, precision: str) -> tuple[Memory, float]:
    """The same from the polynomials only."""
    _, model, seconds = _predict(request, strategy, precision)
    return _estimate(request, model, strategy), seconds


def _predict(request: PlanRequest, strategy: Strategy, precision: str) -> tuple[Variant, StepModel, float]:
    check_precision(request.target, precision)
    variant = build_variant(strategy, precision)
    model = model_variant(request, variant)
    steps = request.split(strategy, model.batching, request.workload.sample())
    return variant, model, float(model.step_seconds(steps, request.target.rates(precision)).mean())


def check_precision(target: Target, precision: str) -> None:
    if precision == "bf16" and target.kind == "gpu" and not target.has_bf16:
        raise PlanError(
            f"strategy.precision is 'bf16' on {target.name}",
            "this GPU has no bf16 in hardware",
            "Set strategy.precision=fp32 or auto, or name a GPU that has it (--gpu)",
        )


def pareto_front(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """From the fastest to the smallest; each is smaller than all faster ones."""
    front: list[PlanCandidate] = []
    for candidate in sorted(candidates, key=lambda item: (item.step_seconds, item.total_bytes)):
        if not front or candidate.total_bytes < front[-1].total_bytes * 0.99:
            front.append(candidate)
    return front


def search_quickly(request: PlanRequest, layouts: Sequence[GpuLayout] = ()) -> tuple[Strategy, Memory, float] | None:
    """The first variant, plainest first, that fits at all: strategy, memory and seconds. For a run that is to start.

    All figures are of one device; the strategy also has to allow `layouts`.
    """
    for variant in _list_variants(replace(request, kept_tokens=None))[0]:  # only a recipe may state trimming
        if variant.traced != variant:  # 8 bits need a package: only a user may ask for them
            continue
        if any(find_refusals(variant.strategy, layout, request.train) for layout in layouts):
            continue
        model = model_variant(request, variant)
        candidates = _try_budgets(request, variant, model, [ONE_GPU])
        for candidate in _in_order([candidate for candidate in candidates if candidate.fits]):
            memory = _estimate(request, model, candidate.strategy)
            if memory.out_of_memory is None:
                return candidate.strategy, memory, candidate.step_seconds
    return None


def _list_variants(request: PlanRequest) -> tuple[list[Variant], list[Refusal]]:
    target, workload = request.target, request.workload
    return list_variants(
        request.model,
        request.train,
        request.allow,
        request.fixed,
        on_gpu=target.kind == "gpu",
        has_bf16=target.has_bf16,
        kept_tokens=request.kept_tokens,
        longest=int(max(workload.source_lengths.max(), workload.target_lengths.max())),
    )


def _is_pointless(variant: Variant, candidates: Sequence[PlanCandidate]) -> bool:
    """fp32 is slower and larger than a half precision that fits: the plainest variant of it is enough to show."""
    halves = [candidate for candidate in candidates if candidate.variant.precision != "fp32" and candidate.fits]
    chosen = dict(variant.fields).keys() & {"recompute", "attention", "optimizer_in_backward"}
    return bool(halves) and variant.precision == "fp32" and bool(chosen)


def model_variant(request: PlanRequest, variant: Variant) -> StepModel:
    model = trace_variant(request, variant.traced)
    return model if variant == variant.traced else model.changed(shrink_template)


def trace_variant(request: PlanRequest, variant: Variant) -> StepModel:
    fake = FakeStep(_build_spec(request, variant))
    return model_step(fake, request.split(variant.strategy, fake.batching, request.workload.largest()))


def _build_spec(request: PlanRequest, variant: Variant) -> StepSpec:
    model_config = request.model_config
    if variant.vocabulary is not None:
        model_config = replace(model_config, config=copy.deepcopy(model_config.config))
        model_config.config.vocab_size = variant.vocabulary
    strategy = variant.traced.strategy
    return StepSpec(model_config, request.model, request.train, strategy, variant.precision, request.target.rules)


def _try_budgets(
    request: PlanRequest, variant: Variant, model: StepModel, layouts: Sequence[GpuLayout]
) -> Iterator[PlanCandidate]:
    target, sampled = request.target, request.workload.sample()
    rates = target.rates(variant.precision)
    evaluation = find_evaluation(request, variant)
    evaluation_seconds = 0.0 if evaluation is None else evaluation.seconds(rates)
    lasting = model.lasting_bytes
    rows = RankRows(request.workload, request.model_config, sampled)
    for budget in _budgets(request):
        check_time_limit()
        strategy = variant.strategy.model_copy(update={"micro_batch_tokens": budget})
        split = partial(request.split, strategy, model.batching)
        for rank in predict_ranks(model, rates, rows, split, layouts, partial(_find_link, target)):
            layout, evaluation_bytes = rank.layout, 0
            if evaluation is not None:
                allocated_bytes = add_lasting(evaluation.working_bytes, layout, lasting, model.gradient_bytes)
                evaluation_bytes = _add_overhead(target, layout, allocated_bytes)
            yield PlanCandidate(
                variant,
                strategy.model_copy(update=layout.fields),
                layout,
                max(_add_overhead(target, layout, rank.peak_bytes), evaluation_bytes),
                rank.step_seconds,
                rank.micro_batches,
                target.capacity_bytes,
                evaluation_bytes,
                evaluation_seconds / layout.count,
            )


def _find_link(target: Target, count: int) -> Link:
    return Link(math.inf, 0.0) if target.card is None else build_card_link(target.card, count)


def _add_overhead(target: Target, layout: GpuLayout, allocated_bytes: int) -> int:
    """What a process holds besides the tensors of the peak."""
    if target.kind == "cpu":
        return allocated_bytes + _HOST_BYTES
    shared = NCCL_BYTES if layout.count > 1 else 0
    return int(allocated_bytes * _MARGIN) + 2 * target.rules.workspace_bytes + target.context_bytes + shared


_EVALUATED = ("lora_rank", "batching")  # fields that an evaluation depends on, besides attention=eager


def find_evaluation(request: PlanRequest, variant: Variant) -> EvaluationModel | None:
    """None where a training has none."""
    if request.evaluations is None:
        return None
    kept = [(name, value) for name, value in variant.fields if name in _EVALUATED or (name, value) == _EAGER]
    plain = Variant(tuple(kept), variant.precision, variant.vocabulary)
    return request.evaluations.model_of((request.target.rules, plain), lambda: _build_spec(request, plain))


def measure_evaluation(
    request: PlanRequest, strategy: Strategy, precision: str, parts: dict[str, int]
) -> Evaluated | None:
    """Of a strategy on one device; `parts`: of its step."""
    found = find_evaluation(request, build_variant(strategy, precision))
    if found is None:
        return None
    target, allocated = request.target, add_lasting(found.working_bytes, ONE_GPU, parts, 0)
    total_bytes = allocated if target.kind == "cpu" else _add_overhead(target, ONE_GPU, allocated)  # as `Memory` has it
    return Evaluated(total_bytes, found.seconds(target.rates(precision)))


def _budgets(request: PlanRequest) -> list[int]:
    stated = request.fixed.get("micro_batch_tokens")
    if stated is not None:
        return [int(stated)]
    workload = request.workload
    most = max(workload.real_tokens([step]) for step in workload.largest())
    longest = int((workload.source_lengths + workload.target_lengths).max())
    budgets = [_SMALLEST_BUDGET]
    while budgets[0] < longest:  # a smaller one would not be split any further
        budgets[0] *= 2
    while budgets[-1] < min(most, _LARGEST_BUDGET):
        budgets.append(budgets[-1] * 3 // 2 if budgets[-1] & (budgets[-1] - 1) == 0 else budgets[-1] * 4 // 3)
    return budgets


def _verify(
    request: PlanRequest, models: Mapping[Variant, StepModel], candidates: Sequence[PlanCandidate]
) -> tuple[PlanCandidate | None, PeakBreakdown | None, list[str]]:
    """The fastest that still fits when traced at its largest micro-batch and replayed."""
    events: list[str] = []
    usable = [candidate for candidate in candidates if candidate.fits and candidate.layout == ONE_GPU]
    for candidate in _in_order(usable)[:6]:
        label = candidate.variant.label
        memory, tape = _measure(request, candidate.variant, models[candidate.variant], candidate.strategy)
        total = memory.total_bytes + (_HOST_BYTES if request.target.kind == "cpu" else 0)
        if memory.out_of_memory is None and total <= request.target.capacity_bytes:
            total = max(total, candidate.evaluation_bytes)
            return replace(candidate, total_bytes=total), explain_peak(tape, label, memory, fits=True), events
        events.append(
            f"{label}, {candidate.strategy.micro_batch_tokens} tokens per micro-batch: was estimated to fit, but needs "
            f"{format_bytes(total)} with the allocator's fragmentation"
        )
    return None, None, events


def _explain_shared(
    request: PlanRequest, models: Mapping[Variant, StepModel], candidates: Sequence[PlanCandidate]
) -> PeakBreakdown | None:
    """What each GPU holds with the fastest that fits on several, by formula."""
    shared = [candidate for candidate in candidates if candidate.fits and candidate.layout != ONE_GPU]
    best = min(shared, key=lambda candidate: candidate.step_seconds, default=None)
    if best is None:
        return None
    model, target = models[best.variant], request.target
    rows = RankRows(request.workload, request.model_config, request.workload.sample())
    steps = request.split(best.strategy, model.batching, rows.find(count_shares(best.layout))[0])
    return explain_rank(
        RankShare(model, target.rates(best.variant.precision), steps),
        best.layout,
        label=best.variant.label,
        total_bytes=best.total_bytes,
        context_bytes=target.context_bytes,
        fits=best.fits,
    )


def _in_order(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """The fastest first; among those within 2% of it the largest micro-batches that need at most half of the memory.

    Because predictions underestimate what many small ones cost. Beyond that half, the smallest memory.
    """
    fastest = min((candidate.step_seconds for candidate in candidates), default=0.0)

    def rank(item: PlanCandidate) -> tuple[float, ...]:
        if item.step_seconds > fastest * (1 + _EQUALLY_FAST):
            return 2, item.step_seconds, item.total_bytes
        if item.total_bytes > item.capacity_bytes / 2:
            return 1, item.total_bytes
        return 0, -item.strategy.micro_batch_tokens, item.step_seconds

    return sorted(candidates, key=rank)


def _measure(request: PlanRequest, variant: Variant, model: StepModel, strategy: Strategy) -> tuple[Memory, Tape]:
    shape, single = model.largest(request.split(strategy, model.batching, request.workload.sample()))
    tape = FakeStep(_build_spec(request, variant)).trace([shape] if single else [shape, shape])
    if variant.traced != variant:
        tape = shrink_tape(tape)
    if request.target.kind == "cpu":
        return measure_steps([[tape]], request.target.rules), tape
    return _estimate(request, model, strategy), tape


def _estimate(request: PlanRequest, model: StepModel, strategy: Strategy) -> Memory:
    """From the polynomials: the largest micro-batch; on a GPU many steps, as its allocator places them."""
    target, steps = request.target, request.split(strategy, model.batching, request.workload.sample())
    if target.kind == "cpu":
        shape, single = model.largest(steps)
        peak_bytes = model.peak_bytes(shape, single=single)
        return Memory(peak_bytes, peak_bytes, 0, model.parts(shape, single=single))
    replayed = [*steps[:_REPLAYED_STEPS], *steps[-2:]]
    return model.measure(replayed, target.rules, target.context_bytes, target.capacity_bytes)


def _best_of_each(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    groups: dict[tuple[Variant, GpuLayout], list[PlanCandidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.variant, candidate.layout), []).append(candidate)
    return [
        min(group, key=lambda c: (0, c.step_seconds) if c.fits else (1, c.total_bytes)) for group in groups.values()
    ]
