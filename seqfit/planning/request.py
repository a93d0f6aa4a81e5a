"""From a recipe to a plan: reads the model's config and the data's lengths, searches, and reports in plain values.

In: a recipe, a target, assumed lengths. Out: a `PlanReport`. No weights are read and nothing runs on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from transformers import PreTrainedTokenizerBase

from seqfit.conversion import ScriptSettings
from seqfit.data import Loader, PreparedData, prepare_data
from seqfit.errors import ModelError, PlanError
from seqfit.model import ModelConfig, build_text_encoder, family_of, load_position_limit, load_tokenizer
from seqfit.parallel import padding_limits
from seqfit.planning.bounds import (
    CALIBRATED_CPU,
    MEMORY,
    ONE_CARD,
    SEVERAL_GPUS,
    SOME_CPU,
    TIME,
    ErrorBound,
    find_bound,
)
from seqfit.planning.candidates import Variant, list_layouts
from seqfit.planning.cluster import ONE_GPU, GpuLayout
from seqfit.planning.evaluation_cost import Evaluations
from seqfit.planning.evaluation_work import find_evaluation_work
from seqfit.planning.exploration import Traces
from seqfit.planning.known_rates import load_rates
from seqfit.planning.memory import explain_peak
from seqfit.planning.placement import HOST_BYTES, PlanCandidate, PlanRequest
from seqfit.planning.report import (
    AssumedLengths,
    PeakBreakdown,
    PlannedEvaluation,
    PlannedStrategy,
    PlanReport,
    TimePart,
)
from seqfit.planning.script_prediction import ScriptTraces, predict_script
from seqfit.planning.search import Plan, measure_evaluation, predict_strategy, search
from seqfit.planning.shape import Workload, assume_workload
from seqfit.planning.target import Target
from seqfit.planning.time_parts import explain_time
from seqfit.progress import Progress
from seqfit.recipe import Recipe
from seqfit.step import Precision, find_cpu_bf16
from seqfit.strategy import Strategy, check_processes, load_strategy
from seqfit.tasks import head_of
from seqfit.trimming import check_trimmable, choose_vocabulary, count_tokens, is_trimmable
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_OFFLOAD_STATED = "The recipe's strategy offloads weights to the host, which needs several GPUs: see the offload rows"
_CPU = "CPU"  # the layout of a plan without a GPU


# What is assumed where nothing is given. Lengths as in summarization; GLUE's of an encoder.
_SOURCE_TOKENS, _TARGET_TOKENS, _CLASSIFIED_TOKENS, PLANNED_ROWS = 512, 64, 128, 10_000
_MANY_GPUS = 16  # to which a plan looks for enough of them


def make_plan(
    recipe: Recipe, target: Target, assumed: AssumedLengths, progress: Progress = lambda *_: None
) -> PlanReport:
    """The best strategy on this target; where the recipe states one, also what that needs."""
    return next(make_plans(recipe, [target], assumed, progress, what_ifs=True))


def make_plans(
    recipe: Recipe,
    targets: Iterable[Target],
    assumed: AssumedLengths,
    progress: Progress = lambda *_: None,
    announce: Callable[[str], None] = lambda _: None,
    *,
    script: ScriptSettings | None = None,
    what_ifs: bool = False,
    traces: Traces | None = None,
) -> Iterator[PlanReport]:
    """One for each target; what runs alike on several of them is traced once. `what_ifs`: also what is not allowed.

    `announce` gets the question as it was understood, and a first answer for each target before its search. `script`,
    which the recipe was converted from, is predicted as it is before anything else.
    """
    stated = None if recipe.strategy is None else load_strategy(recipe)
    traces = Traces() if traces is None else traces
    request, script_traces = None, ScriptTraces()
    for target in targets:
        if stated is not None and target.count == 1:
            check_processes(stated, 1)
        if request is None:
            request = build_request(recipe, target, assumed, progress=progress)
            announce(_describe_request(recipe, request))
        own = None if stated is None else (stated, choose_precision_name(stated, target, request.allow))
        request = replace(request, target=target, layouts=_list_layouts(target, target.count), stated=own)
        as_it_is = None
        if script is not None:
            as_it_is = predict_script(script, recipe, request, script_traces, is_assumed=assumed.without_data)
            announce(f"{as_it_is.answer} {as_it_is.cause_sentence}")
        predicted = None if stated is None or stated.offload else predict_own(request, stated, traces)
        report_first = None if predicted is not None else partial(_announce_first, announce, request)
        if predicted is not None:
            announce(_describe_first(request, predicted[0]))
        plan = search(request, progress, traces=traces, what_ifs=what_ifs, report_first=report_first)
        if stated is not None and stated.offload:
            plan = replace(plan, events=[*plan.events, _OFFLOAD_STATED])
        if target.kind == "cpu" and own is not None and own[1] == "bf16" and find_cpu_bf16() != "native":
            plan = replace(plan, events=[*plan.events, _warn_of_bf16(target)])
        report = _add_evaluation(request, summarise_plan(request, plan, predicted))
        report = replace(report, script=as_it_is)
        if report.best is None and target.kind == "gpu":
            report = replace(report, enough=_find_enough(request, traces))
        yield replace(
            report, basis=_describe_basis(recipe, assumed), assumptions=_list_assumed(recipe, request, assumed)
        )


def _warn_of_bf16(target: Target) -> str:
    speeds = target.rates("bf16").flops_per_second
    speed = speeds["half product"] / speeds["product"]
    return (
        f"This CPU has no bf16 instructions: its matrix products in bf16 run at {speed:.2g} times the speed of fp32's, "
        "and take other memory; strategy.precision=fp32 is the alternative"
    )


def _describe_request(recipe: Recipe, request: PlanRequest) -> str:
    workload = request.workload
    lengths = f"up to {workload.source_lengths.max():,} source"
    lengths += " tokens" if workload.is_classifier else f" and {workload.target_lengths.max():,} target tokens"
    batch = recipe.train.batch_tokens
    size = f"{recipe.train.examples_per_step} examples" if batch is None else f"{format_count(batch)} tokens"
    return f"planning {recipe.model.location}: {size} per step, {lengths}"


def _announce_first(announce: Callable[[str], None], request: PlanRequest, candidate: PlanCandidate) -> None:
    announce(_describe_first(request, _plan_candidate(request, candidate)))


def _describe_first(request: PlanRequest, planned: PlannedStrategy) -> str:
    """What is known before the search."""
    verdict = "fits" if planned.fits else "does not fit"
    sizes = f"{format_bytes(planned.predicted_bytes)} of {format_bytes(request.target.capacity_bytes)}"
    seconds = format_seconds(planned.predicted_step_seconds)
    return f"{request.target.name}: {planned.label} {verdict}, {sizes}, {seconds} per step; searching for the best ..."


def _add_evaluation(request: PlanRequest, report: PlanReport) -> PlanReport:
    """By the best strategy."""
    best = report.best
    if request.evaluations is None or best is None:
        return report
    work = request.evaluations.work
    planned = PlannedEvaluation(
        work.times,
        work.rows,
        work.beams,
        0 if request.workload.is_classifier else work.max_new_tokens,
        work.times * best.evaluation_seconds,
        best.evaluation_bytes,
        is_peak=best.evaluation_bytes >= best.predicted_bytes,
    )
    return replace(report, evaluation=planned)


def _find_enough(request: PlanRequest, traces: Traces) -> PlannedStrategy | None:
    """The fastest strategy on the fewest GPUs that fits by formula."""
    more = replace(request, layouts=_list_layouts(request.target, _MANY_GPUS))
    found = search(more, traces=traces, verify=False).best_of_each
    fitting = [candidate for candidate in found if candidate.fits and candidate.layout != ONE_GPU]
    best = min(fitting, key=lambda one: (one.layout.count, one.step_seconds), default=None)
    return None if best is None else _plan_candidate(request, best)


def _list_layouts(target: Target, count: int) -> tuple[GpuLayout, ...]:
    return list_layouts(count) if target.kind == "gpu" else (ONE_GPU,)


def build_request(
    recipe: Recipe,
    target: Target,
    assumed: AssumedLengths = AssumedLengths(),  # noqa: B008, frozen
    *,
    data: PreparedData | None = None,
    kept_tokens: int | None = None,
    progress: Progress = lambda *_: None,
) -> PlanRequest:
    """What the search needs, from files. `data` and the tokens that trimming keeps are given if they are known."""
    model_config = ModelConfig.load(recipe.model, head_of(recipe.task), may_be_known=True)
    if data is None and not assumed.without_data:
        tokenizer = _load_tokenizer(recipe)
        limit = load_position_limit(recipe.model)
        encoder = build_text_encoder(tokenizer)
        splits = "train", "validation"
        data = prepare_data(recipe, tokenizer, splits, encoder=encoder, position_limit=limit, progress=progress)
        mode = recipe.model.trim_vocabulary
        if mode is not None or is_trimmable(tokenizer):
            check_trimmable(tokenizer)
            counts = count_tokens(data, len(tokenizer))
            kept_tokens = len(choose_vocabulary(recipe.model, tokenizer, counts, "data" if mode is None else mode)[0])
    if recipe.model.trim_vocabulary is not None and kept_tokens is not None:
        model_config.config.vocab_size = kept_tokens
    limit = family_of(model_config.config).max_positions(model_config.config)
    workload = _find_workload(recipe, assumed, data, limit)
    work = find_evaluation_work(recipe, data, workload, limit, _count_epoch(recipe, assumed, workload))
    return PlanRequest(
        model_config=model_config,
        model=recipe.model,
        train=recipe.train,
        allow=tuple(recipe.allow),
        fixed={},
        workload=workload,
        target=target,
        limits=padding_limits(recipe),
        kept_tokens=kept_tokens if recipe.model.trim_vocabulary is None else None,
        layouts=_list_layouts(target, target.count),
        evaluations=None if work is None else Evaluations(work),
        lengths_are_assumed=data is None,
    )


def _count_epoch(recipe: Recipe, assumed: AssumedLengths, workload: Workload) -> float:
    """Steps of an epoch."""
    if not assumed.without_data:
        share = 1.0 if assumed.rows is None else assumed.rows / len(workload.source_lengths)
        return share * len(workload.steps)
    return (assumed.rows or PLANNED_ROWS) / len(workload.steps[0])


def _load_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase:
    try:
        return load_tokenizer(recipe.model)
    except ModelError as error:
        without = "Or plan without the data, by lengths: --no-data --source-tokens 512 --target-tokens 64"
        raise ModelError(error.given, error.rule, f"{error.change.rstrip('.')}. {without}", hint=error.hint) from error


def choose_precision_name(strategy: Strategy, target: Target, allow: tuple[str, ...]) -> str:
    """As training chooses it, for a device that need not be available here."""
    if strategy.precision != "auto":
        return strategy.precision
    return Precision.resolve_auto(has_bf16=target.has_bf16, allow=allow)


def summarise_plan(
    request: PlanRequest, plan: Plan, stated: tuple[PlannedStrategy, PeakBreakdown, list[TimePart]] | None
) -> PlanReport:
    """A plan in plain values; `stated` is the prediction of the recipe's own strategy."""
    target, chosen = request.target, plan.chosen
    # The chosen one as it was verified, the others as the polynomials predict them.
    strategies = [
        chosen if chosen is not None and (item.variant, item.layout) == (chosen.variant, chosen.layout) else item
        for item in plan.best_of_each
    ]
    report = PlanReport(
        target=target.name if target.count == 1 else f"{target.count} x {target.name}",
        target_kind=target.kind,
        capacity_bytes=target.capacity_bytes,
        real_tokens_per_step=plan.real_tokens,
        total_steps=plan.total_steps,
        rates_source=plan.rates_source,
        chosen=None if chosen is None else _plan_candidate(request, chosen),
        stated=None if stated is None else stated[0],
        peak=plan.peak if stated is None else stated[1],
        strategies=[
            _plan_candidate(request, candidate, _why_not(candidate, chosen))
            for candidate in (*strategies, *plan.what_ifs)
        ],
        pareto=[_plan_candidate(request, candidate) for candidate in plan.front if candidate.layout == ONE_GPU],
        refused=plan.refusals,
        events=plan.events,
        time_parts=plan.time_parts if stated is None else stated[2],
        bytes_source=find_bounds(target, target.count)[0].source,
        seconds_source=find_bounds(target, target.count)[1].source,
    )
    is_shared = report.best is not None and report.best.by_formula
    return replace(report, peak=plan.shared_peak, time_parts=[]) if is_shared else report


def _plan_candidate(request: PlanRequest, candidate: PlanCandidate, why_not: str = "") -> PlannedStrategy:
    variant = candidate.variant
    fields = candidate.strategy.model_dump(exclude_defaults=True, exclude={"name"})
    overrides = [f"strategy.{name}={format_override_value(value)}" for name, value in fields.items()]
    if variant.vocabulary is not None:
        overrides.append("model.trim_vocabulary=data")
    needs = _describe_needs(request, variant)
    bytes_bound, seconds_bound = find_bounds(request.target, candidate.layout.count)
    return PlannedStrategy(
        label=variant.label,
        layout=str(candidate.layout) if request.target.kind == "gpu" else _CPU,
        micro_batch_tokens=candidate.strategy.micro_batch_tokens,
        micro_batches=candidate.micro_batches,
        predicted_bytes=candidate.total_bytes,
        predicted_step_seconds=candidate.step_seconds,
        fits=candidate.fits,
        overrides=[*overrides, needs] if needs else overrides,
        why_not=why_not,
        by_formula=candidate.layout != ONE_GPU,
        gpus=candidate.layout.count,
        evaluation_bytes=candidate.evaluation_bytes,
        evaluation_seconds=candidate.evaluation_seconds,
        lossy=variant.is_lossy or bool(needs),
        needs=needs,
        bytes_error=bytes_bound.error,
        seconds_error=seconds_bound.error,
        host_bytes=candidate.host_bytes,
    )


def _describe_needs(request: PlanRequest, variant: Variant) -> str:
    """The override that would permit it."""
    if variant.truncated is not None:
        return f"task.max_source_tokens={variant.truncated}"
    return f"allow=[{','.join(sorted({*request.allow, variant.needs}))}]" if variant.needs else ""


def find_bounds(target: Target, count: int) -> tuple[ErrorBound, ErrorBound]:
    """Of memory and of time."""
    if target.kind == "cpu":
        return find_bound(MEMORY, SOME_CPU), find_bound(TIME, SOME_CPU if load_rates("cpu") is None else CALIBRATED_CPU)
    place = SEVERAL_GPUS if count > 1 else ONE_CARD
    return find_bound(MEMORY, place), find_bound(TIME, place)


def _find_workload(recipe: Recipe, assumed: AssumedLengths, data: PreparedData | None, limit: int | None) -> Workload:
    """`limit`: the longest text that the model has positions for."""
    is_classifier = recipe.model.kind == "classifier"
    for option, tokens in (("--source-tokens", assumed.source_tokens), ("--target-tokens", assumed.target_tokens)):
        if limit is not None and tokens is not None and tokens > limit:
            raise PlanError(
                f"{option} is {tokens}",
                f"'{recipe.model.location}' has positions for {limit} tokens",
                f"Give at most {limit}, or choose a model with relative positions, such as google/flan-t5-base",
            )
    if assumed.without_data:
        source_tokens, target_tokens = _choose_lengths(assumed, limit, is_classifier=is_classifier)
        together = source_tokens + (0 if is_classifier else target_tokens)
        examples = recipe.train.examples_per_step or max(1, (recipe.train.batch_tokens or 1) // together)
        total_steps = _count_steps(recipe, assumed, (assumed.rows or PLANNED_ROWS) / examples)
        return assume_workload(
            examples, source_tokens, target_tokens, is_classifier=is_classifier, total_steps=total_steps
        )
    assert data is not None
    split, train = data.splits["train"], recipe.train
    batch = {"batch_examples": train.examples_per_step, "batch_tokens": train.batch_tokens}
    steps = tuple(Loader.split_epoch(split, 0, **batch, seed=recipe.seed))  # in the order that training uses
    targets = np.zeros_like(split.target_lengths) if is_classifier else split.target_lengths
    share = 1.0 if assumed.rows is None else assumed.rows / len(split.source_lengths)
    total_steps = _count_steps(recipe, assumed, share * len(steps))
    workload = Workload(split.source_lengths, targets, steps, is_classifier, total_steps)
    return workload.with_longest(assumed.source_tokens, assumed.target_tokens)


def _count_steps(recipe: Recipe, assumed: AssumedLengths, steps_per_epoch: float) -> int:
    """Rows that are given count more than the recipe's number of steps, which is for its own data."""
    if recipe.train.steps is not None and assumed.rows is None:
        return recipe.train.steps
    return max(1, round(recipe.train.passes * max(1.0, steps_per_epoch)))


def _choose_lengths(assumed: AssumedLengths, limit: int | None, *, is_classifier: bool) -> tuple[int, int]:
    longest = limit or _SOURCE_TOKENS
    source_tokens = assumed.source_tokens or min(_CLASSIFIED_TOKENS if is_classifier else _SOURCE_TOKENS, longest)
    return source_tokens, assumed.target_tokens or min(_TARGET_TOKENS, longest)


def _describe_basis(recipe: Recipe, assumed: AssumedLengths) -> str:
    if assumed.rows is None and recipe.train.steps is not None:
        return f"{recipe.train.steps:,} steps"
    if assumed.rows is None and not assumed.without_data:
        return "your data"
    passes = recipe.train.passes
    return f"{assumed.rows or PLANNED_ROWS:,} rows ({passes:g} epoch{'' if passes == 1 else 's'})"


def _list_assumed(recipe: Recipe, request: PlanRequest, assumed: AssumedLengths) -> list[str]:
    """What neither the recipe nor an option says, each with the option."""
    if not assumed.without_data:
        return []
    train, workload, listed = recipe.train, request.workload, []
    if train.batch_examples is None and train.batch_tokens is None:
        listed.append(f"batches of {train.examples_per_step} (--batch)")
    if assumed.source_tokens is None:
        listed.append(f"{workload.source_lengths[0]} source tokens (--source-tokens)")
    if assumed.target_tokens is None and not workload.is_classifier:
        listed.append(f"{workload.target_lengths[0]} target tokens (--target-tokens)")
    if "optimizer" not in train.model_fields_set:
        listed.append(f"{train.optimizer.name} (--optimizer)")
    if assumed.rows is None and train.steps is None:
        listed.append(f"{PLANNED_ROWS:,} rows (--rows)")
    if request.evaluations is not None and recipe.eval.limit is None:
        listed.append(f"{request.evaluations.work.rows:,} rows per evaluation (eval.limit=N)")
    if train.epochs is None and train.steps is None:
        listed.append(f"{train.passes:g} epochs (--epochs)")
    return listed


def predict_own(
    request: PlanRequest, strategy: Strategy, traces: Traces
) -> tuple[PlannedStrategy, PeakBreakdown, list[TimePart]]:
    precision = choose_precision_name(strategy, request.target, request.allow)
    memory, tape, seconds = predict_strategy(request, strategy, precision, traces)
    evaluation = measure_evaluation(request, strategy, precision, memory.parts)
    on_gpu = request.target.kind == "gpu"
    total = memory.total_bytes if evaluation is None else max(memory.total_bytes, evaluation.total_bytes)
    total += 0 if on_gpu else HOST_BYTES
    fits = memory.out_of_memory is None and total <= request.target.capacity_bytes
    label = strategy.name if strategy.name != "default" else "the recipe's strategy"
    bytes_bound, seconds_bound = find_bounds(request.target, 1)
    steps = request.split(strategy, strategy.batching, request.workload.sample())
    micro_batches = sum(map(len, steps)) / len(steps)
    planned = PlannedStrategy(
        label=label,
        layout=str(ONE_GPU) if on_gpu else _CPU,
        micro_batch_tokens=strategy.micro_batch_tokens,
        micro_batches=micro_batches,
        predicted_bytes=total,
        predicted_step_seconds=seconds,
        fits=fits,
        overrides=[],
        why_not="" if fits else f"misses by {format_bytes(total - request.target.capacity_bytes)}",
        bytes_error=bytes_bound.error,
        seconds_error=seconds_bound.error,
        evaluation_bytes=0 if evaluation is None else evaluation.total_bytes,
        evaluation_seconds=0.0 if evaluation is None else evaluation.seconds,
    )
    peak = explain_peak(tape, label, memory, fits=fits)
    return planned, peak, explain_time(tape, request.target.rates(precision), micro_batches, seconds)


def _why_not(candidate: PlanCandidate, chosen: PlanCandidate | None) -> str:
    if not candidate.fits:
        return f"misses by {format_bytes(candidate.total_bytes - candidate.capacity_bytes)}"
    if chosen is None or (candidate.variant, candidate.layout) == (chosen.variant, chosen.layout):
        return ""
    if candidate.layout != ONE_GPU:
        return "computed by formula; `seqfit train` does not choose it by itself"
    slower = candidate.step_seconds / chosen.step_seconds - 1
    return f"{format_share(slower)} slower" if slower > 0.005 else "no faster"


def format_override_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
