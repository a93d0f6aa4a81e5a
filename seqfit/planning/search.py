"""Finds the fastest strategy that fits, and says why the others were not chosen.

In: a `PlanRequest` (model, recipe, what a run feeds it, the target). Out: a `Plan`. Each variant is traced at two or
three small shapes and becomes a function of the micro-batch; micro-batch sizes are then tried in milliseconds. What is
chosen is traced once more at its largest micro-batch, and on a GPU replayed on the allocator with the GPU's capacity:
the polynomials propose, the trace decides.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seqfit.errors import PlanError
from seqfit.parallel import choose_blockwise_above
from seqfit.planning.candidates import Variant, build_stated_variant, find_refusals, list_variants
from seqfit.planning.cluster import DATAPARALLEL, ONE_GPU, GpuLayout
from seqfit.planning.evaluation_cost import add_lasting
from seqfit.planning.exploration import EQUALLY_FAST, Exploration, Traces, apply_rules
from seqfit.planning.fake_step import FakeStep, StepSpec, build_meta_model, leave_old_objects
from seqfit.planning.memory import Memory, explain_peak, measure_steps
from seqfit.planning.placement import (
    HOST_BYTES,
    PlanCandidate,
    PlanRequest,
    add_overhead,
    build_spec,
    find_best_of_each,
    find_evaluation,
    find_share,
    list_budgets,
    pareto_front,
    try_budgets,
)
from seqfit.planning.ranks import explain_rank
from seqfit.planning.report import PeakBreakdown, Refusal, TimePart
from seqfit.planning.second_process import Tracers
from seqfit.planning.shape import KERNEL, Paths, Shape, find_regime
from seqfit.planning.step_model import StepModel, count_layers, model_step
from seqfit.planning.tape import Tape
from seqfit.planning.target import Target
from seqfit.planning.template import shrink_tape
from seqfit.planning.time_parts import explain_time
from seqfit.progress import Progress
from seqfit.strategy import Strategy
from seqfit.units import format_bytes, format_seconds

_REPLAYED_STEPS = 24
MOST_VERIFIED = 8


def serve_traces() -> None:
    """The second process: a request and variants come in as pickles, step models go out, until standard input ends.

    Before the first model goes out that it is ready.
    """
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints must not get between the pickles
    request = pickle.load(sys.stdin.buffer)
    pickle.dump("ready", output)
    output.flush()
    with leave_old_objects():
        while True:
            try:
                variant = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(trace_variant(request, variant), output)
            output.flush()


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
    time_parts: list[TimePart] = field(default_factory=list)  # of the strategy that `peak` is of
    what_ifs: list[PlanCandidate] = field(default_factory=list)  # what the recipe does not allow


def search(
    request: PlanRequest,
    progress: Progress = lambda *_: None,
    *,
    traces: Traces | None = None,
    verify: bool = True,
    what_ifs: bool = False,
    report_first: Callable[[PlanCandidate], None] | None = None,
) -> Plan:
    """`traces`: of searches for the same model and data, found there and added; without `verify` nothing is chosen.

    `what_ifs`: also what the recipe does not allow. `report_first` is called with the best of the first variant, the
    plainest, when that has been traced.
    """
    variants, refusals = list_request_variants(request)
    has_pipeline = any(layout.parallel == "pipeline" for layout in request.layouts)
    model = build_meta_model(build_spec(request, variants[0])) if has_pipeline else None
    is_large = count_layers(request.model_config.config) >= 12  # for fewer a second process does not pay off
    expected = len(variants) + (4 if what_ifs else 0)
    with leave_old_objects(), Tracers(request, trace_variant, second_process=is_large, expected=expected) as tracers:
        looked = Exploration(request, tracers, {} if traces is None else traces, progress, model)
        looked.first = None if report_first is None else (variants[0], report_first)
        looked.look_at_stated()
        for precision in dict.fromkeys(variant.precision for variant in variants):
            looked.look_at_precision([variant for variant in variants if variant.precision == precision])
        looked.compare_alternatives()
        progress("planning", looked.done, looked.done)
        chosen, tape, events = _verify(request, looked) if verify else (None, None, [])
        tried = looked.try_what_ifs(chosen) if what_ifs else []
    steps = request.workload.sample()
    usable = [candidate for candidate in looked.candidates if candidate.layout.parallel != DATAPARALLEL]
    shown = {candidate.variant.needs for candidate in tried}
    return Plan(
        chosen=chosen,
        peak=None if tape is None else tape[0],
        shared_peak=_explain_shared(request, looked.models, usable) if verify else None,
        front=pareto_front(usable),
        best_of_each=find_best_of_each(usable),
        refusals=[
            *(refusal for refusal in refusals if not refusal.allow or refusal.allow not in shown),
            *looked.refusals,
            *_report_dataparallel(looked.candidates),
        ],
        real_tokens=request.workload.real_tokens(steps) / len(steps),
        total_steps=request.workload.total_steps,
        rates_source=request.target.rates(variants[0].precision).source,
        events=[*tracers.events, *events, *_warn(chosen)],
        time_parts=[] if tape is None else tape[1],
        what_ifs=tried,
    )


def _report_dataparallel(candidates: Sequence[PlanCandidate]) -> Iterator[Refusal]:
    """What the plainest variant would need with it, to compare with published figures."""
    found = find_best_of_each([candidate for candidate in candidates if candidate.layout.parallel == DATAPARALLEL])
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


def predict_strategy(
    request: PlanRequest, strategy: Strategy, precision: str, traces: Traces | None = None
) -> tuple[Memory, Tape, float]:
    """`traces`: as of a search."""
    variant, model, seconds = _predict(request, strategy, precision, traces)
    memory, tape = _measure(request, variant, model, strategy)
    return memory, tape, seconds


@dataclass(frozen=True)
class Evaluated:
    """An evaluation on one device."""

    total_bytes: int
    seconds: float


def measure_evaluation(
    request: PlanRequest, strategy: Strategy, precision: str, parts: dict[str, int]
) -> Evaluated | None:
    """Of a strategy on one device; `parts`: of its step."""
    found = find_evaluation(request, build_stated_variant(strategy, precision))
    if found is None:
        return None
    target, allocated = request.target, add_lasting(found.working_bytes, ONE_GPU, parts, 0)
    total_bytes = allocated if target.kind == "cpu" else add_overhead(target, ONE_GPU, allocated)  # as `Memory` has it
    return Evaluated(total_bytes, found.seconds(target.rates(precision)))


def predict_strategy_quickly(request: PlanRequest, strategy: Strategy, precision: str) -> tuple[Memory, float]:
    """The same from the polynomials only."""
    _, model, seconds = _predict(request, strategy, precision)
    return _estimate(request, model, strategy), seconds


def _predict(
    request: PlanRequest, strategy: Strategy, precision: str, traces: Traces | None = None
) -> tuple[Variant, StepModel, float]:
    check_precision(request.target, precision)
    variant, known = build_stated_variant(strategy, precision), {} if traces is None else traces
    key = request.target.rules, variant.traced
    if key not in known:
        known[key] = trace_variant(request, variant.traced)
    model = apply_rules(variant, known[key])
    steps = request.split(strategy, model.batching, request.workload.sample())
    return variant, model, float(model.step_seconds(steps, request.target.rates(precision)).mean())


def check_precision(target: Target, precision: str) -> None:
    if precision == "bf16" and target.kind == "gpu" and not target.has_bf16:
        raise PlanError(
            f"strategy.precision is 'bf16' on {target.name}",
            "this GPU has no bf16 in hardware",
            "Set strategy.precision=fp32 or auto, or name a GPU that has it (--gpu)",
        )


def search_quickly(request: PlanRequest, layouts: Sequence[GpuLayout] = ()) -> tuple[Strategy, Memory, float] | None:
    """The first variant, plainest first, that fits at all: strategy, memory and seconds. For a run that is to start.

    All figures are of one device; the strategy also has to allow `layouts`.
    """
    for variant in list_request_variants(replace(request, kept_tokens=None))[0]:  # only a recipe may state trimming
        if variant.traced != variant:  # 8 bits need a package: only a user may ask for them
            continue
        if any(find_refusals(variant.strategy, layout, request.train) for layout in layouts):
            continue
        model = model_variant(request, variant)
        candidates = try_budgets(request, variant, model, [ONE_GPU], list_budgets(request))
        for candidate in _in_order([candidate for candidate in candidates if candidate.fits]):
            memory = _estimate(request, model, candidate.strategy)
            if memory.out_of_memory is None:
                return candidate.strategy, memory, candidate.step_seconds
    return None


def list_request_variants(request: PlanRequest) -> tuple[list[Variant], list[Refusal]]:
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


def model_variant(request: PlanRequest, variant: Variant) -> StepModel:
    return apply_rules(variant, trace_variant(request, variant.traced))


def trace_variant(request: PlanRequest, variant: Variant) -> StepModel:
    spec = build_spec(request, variant)
    fake = FakeStep(spec)
    strategy = variant.strategy
    if variant.budget is not None:
        strategy = strategy.model_copy(update={"micro_batch_tokens": variant.budget})
    steps = request.split(strategy, fake.batching, request.workload.largest())
    return model_step(fake, steps, of_one_shape=variant.budget is not None and _is_quick(spec, steps))


def _is_quick(spec: StepSpec, steps: Sequence[Sequence[Shape]]) -> bool:
    """A trace of a whole micro-batch takes no longer than one of two examples, unless it loops over their segments."""
    paths = Paths(choose_blockwise_above(spec.strategy.attention, spec.device))
    regimes = {find_regime(shape, paths) for step in steps for shape in step}
    return all({regime.encoder, regime.decoder, regime.cross} <= {None, KERNEL} for regime in regimes)


_Explained = tuple[PeakBreakdown, list[TimePart]]


def _verify(request: PlanRequest, looked: Exploration) -> tuple[PlanCandidate | None, _Explained | None, list[str]]:
    """The fastest on one GPU that still fits when traced at its largest micro-batch and replayed.

    Candidates get what was found. Where nothing fits, what the smallest needs is explained.
    """
    events: list[str] = []
    for _ in range(MOST_VERIFIED):
        usable = [one for one in looked.candidates if one.fits and one.layout == ONE_GPU]
        if not usable:
            break
        candidate = _in_order(usable)[0]
        found, explained = _check(request, looked, candidate)
        if found.fits:
            better = [one for one in usable if _is_better(one, found)]
            if better:
                other, other_explained = _check(request, looked, min(better, key=lambda one: one.step_seconds))
                if other.fits and _is_better(other, found):
                    return other, other_explained, events
            return found, explained, events
        events.append(
            f"{candidate.variant.label}, {candidate.strategy.micro_batch_tokens} tokens per micro-batch: was estimated "
            f"to fit, but needs {format_bytes(found.total_bytes)} with the allocator's fragmentation"
        )
    on_one = [one for one in looked.candidates if one.layout == ONE_GPU]
    found, explained = _check(request, looked, min(on_one, key=lambda one: one.total_bytes))
    return found if found.fits else None, explained, events  # an estimate may also be too high


def _explain_shared(
    request: PlanRequest, models: Mapping[Variant, StepModel], candidates: Sequence[PlanCandidate]
) -> PeakBreakdown | None:
    """What each GPU holds with the fastest that fits on several, by formula."""
    shared = [candidate for candidate in candidates if candidate.fits and candidate.layout != ONE_GPU]
    best = min(shared, key=lambda candidate: candidate.step_seconds, default=None)
    if best is None:
        return None
    model, target = models[best.variant], request.target
    share, _ = find_share(request, best.variant, model, best.layout, best.strategy.micro_batch_tokens)
    return explain_rank(
        share,
        best.layout,
        label=best.variant.label,
        total_bytes=best.total_bytes,
        context_bytes=target.context_bytes,
        fits=best.fits,
    )


def _is_better(one: PlanCandidate, other: PlanCandidate) -> bool:
    return one.step_seconds < other.step_seconds and one.total_bytes < other.total_bytes


def _check(request: PlanRequest, looked: Exploration, candidate: PlanCandidate) -> tuple[PlanCandidate, _Explained]:
    """Traced and replayed. Others of its variant, with smaller or larger micro-batches, need more by about as much."""
    memory, tape = _measure(request, candidate.variant, looked.models[candidate.variant], candidate.strategy)
    total_bytes = memory.total_bytes + (HOST_BYTES if request.target.kind == "cpu" else 0)
    total_bytes = max(total_bytes, candidate.evaluation_bytes)
    found = replace(candidate, total_bytes=total_bytes)
    factor = max(1.0, total_bytes / candidate.total_bytes)
    looked.candidates = [
        found
        if one == candidate
        else replace(one, total_bytes=int(one.total_bytes * factor))
        if (one.variant, one.layout) == (candidate.variant, candidate.layout)
        else one
        for one in looked.candidates
    ]
    return found, _explain(request, found, memory, tape)


def _explain(request: PlanRequest, candidate: PlanCandidate, memory: Memory, tape: Tape) -> _Explained:
    peak = explain_peak(tape, candidate.variant.label, memory, fits=candidate.fits)
    rates = request.target.rates(candidate.variant.precision)
    return peak, explain_time(tape, rates, candidate.micro_batches, candidate.step_seconds)


def _in_order(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """The fastest first; among those within 2% of it the largest micro-batches that need at most half of the memory.

    Because predictions underestimate what many small ones cost. Beyond that half, the smallest memory.
    """
    fastest = min((candidate.step_seconds for candidate in candidates), default=0.0)

    def rank(item: PlanCandidate) -> tuple[float, ...]:
        if item.step_seconds > fastest * (1 + EQUALLY_FAST):
            return 2, item.step_seconds, item.total_bytes
        if item.total_bytes > item.capacity_bytes / 2:
            return 1, item.total_bytes
        return 0, -item.strategy.micro_batch_tokens, item.step_seconds

    return sorted(candidates, key=rank)


def _measure(request: PlanRequest, variant: Variant, model: StepModel, strategy: Strategy) -> tuple[Memory, Tape]:
    shape, single = model.largest(request.split(strategy, model.batching, request.workload.sample()))
    tape = model.trace([shape] if single else [shape, shape])
    if ("optimizer", "8bit") in variant.fields:
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
