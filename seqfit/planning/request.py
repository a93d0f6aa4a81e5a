"""From a recipe to a plan: reads the model's config and the data's lengths, searches, and reports in plain values.

In: a recipe, a target, assumed lengths. Out: a `PlanReport`. No weights are read and nothing runs on a device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqfit.data import Loader, PreparedData, prepare_data
from seqfit.errors import PlanError
from seqfit.model import ModelConfig, build_text_encoder, load_position_limit, load_tokenizer
from seqfit.parallel import padding_limits
from seqfit.planning.candidates import list_layouts
from seqfit.planning.cluster import ONE_GPU
from seqfit.planning.memory import explain_peak
from seqfit.planning.report import PeakBreakdown, PlannedStrategy, PlanReport
from seqfit.planning.search import Plan, PlanCandidate, PlanRequest, predict_strategy, search
from seqfit.planning.shape import Workload, assume_workload
from seqfit.planning.target import Target
from seqfit.progress import Progress
from seqfit.recipe import Recipe
from seqfit.step import Precision
from seqfit.strategy import Strategy, check_processes, load_strategy
from seqfit.tasks import head_of
from seqfit.trimming import check_trimmable, choose_vocabulary, count_tokens, is_trimmable
from seqfit.units import format_bytes, format_share

_OFFLOAD_STATED = "The recipe's strategy offloads weights to the host, which needs several GPUs: see the offload rows"
_CPU = "CPU"  # the layout of a plan without a GPU


@dataclass(frozen=True)
class AssumedLengths:
    """Lengths to plan for instead of the data's; None: the data's."""

    source_tokens: int | None = None
    target_tokens: int | None = None
    without_data: bool = False


def make_plan(
    recipe: Recipe, target: Target, assumed: AssumedLengths, progress: Progress = lambda *_: None
) -> PlanReport:
    """The best strategy on this target; where the recipe states one, also what that needs."""
    stated = None if recipe.strategy is None else load_strategy(recipe)
    if stated is not None and target.count == 1:
        check_processes(stated, 1)
    request = build_request(recipe, target, assumed, progress=progress)
    predicted = None if stated is None or stated.offload else _predict_stated(request, stated)
    plan = search(request, progress)
    if stated is not None and stated.offload:
        plan = replace(plan, events=[*plan.events, _OFFLOAD_STATED])
    return summarise_plan(request, plan, predicted)


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
    model_config = ModelConfig.load(recipe.model, head_of(recipe.task))
    trims = recipe.model.trim_vocabulary is not None or "trim" in recipe.allow
    if data is None and not assumed.without_data:
        tokenizer = load_tokenizer(recipe.model)
        limit = load_position_limit(recipe.model)
        encoder = build_text_encoder(tokenizer)
        data = prepare_data(recipe, tokenizer, ("train",), encoder=encoder, position_limit=limit, progress=progress)
        mode = recipe.model.trim_vocabulary
        if trims and (mode is not None or is_trimmable(tokenizer)):
            check_trimmable(tokenizer)
            counts = count_tokens(data, len(tokenizer))
            kept_tokens = len(choose_vocabulary(recipe.model, tokenizer, counts, "data" if mode is None else mode)[0])
    if recipe.model.trim_vocabulary is not None and kept_tokens is not None:
        model_config.config.vocab_size = kept_tokens
    return PlanRequest(
        model_config=model_config,
        model=recipe.model,
        train=recipe.train,
        allow=tuple(recipe.allow),
        fixed={},
        workload=_find_workload(recipe, assumed, data),
        target=target,
        limits=padding_limits(recipe),
        kept_tokens=kept_tokens if recipe.model.trim_vocabulary is None else None,
        layouts=list_layouts(target.count) if target.kind == "gpu" else (ONE_GPU,),
    )


def choose_precision_name(strategy: Strategy, target: Target, allow: tuple[str, ...]) -> str:
    """As training chooses it, for a device that need not be available here."""
    if strategy.precision != "auto":
        return strategy.precision
    return Precision.resolve_auto(has_bf16=target.has_bf16, allow=allow)


def summarise_plan(
    request: PlanRequest, plan: Plan, stated: tuple[PlannedStrategy, PeakBreakdown] | None
) -> PlanReport:
    """A plan in plain values; `stated` is the prediction of the recipe's own strategy."""
    target, chosen = request.target, plan.chosen

    def build(candidate: PlanCandidate, why_not: str = "") -> PlannedStrategy:
        fields = candidate.strategy.model_dump(exclude_defaults=True, exclude={"name"})
        overrides = [f"strategy.{name}={_shown(value)}" for name, value in fields.items()]
        if candidate.variant.vocabulary is not None:
            overrides.append("model.trim_vocabulary=data")
        return PlannedStrategy(
            label=candidate.variant.label,
            layout=str(candidate.layout) if target.kind == "gpu" else _CPU,
            micro_batch_tokens=candidate.strategy.micro_batch_tokens,
            micro_batches=candidate.micro_batches,
            predicted_bytes=candidate.total_bytes,
            predicted_step_seconds=candidate.step_seconds,
            fits=candidate.fits,
            overrides=overrides,
            why_not=why_not,
            by_formula=candidate.layout != ONE_GPU,
        )

    # The chosen one as it was verified, the others as the polynomials predict them.
    strategies = [
        chosen if chosen is not None and (item.variant, item.layout) == (chosen.variant, chosen.layout) else item
        for item in plan.best_of_each
    ]
    return PlanReport(
        target=target.name if target.count == 1 else f"{target.count} x {target.name}",
        target_kind=target.kind,
        capacity_bytes=target.capacity_bytes,
        real_tokens_per_step=plan.real_tokens,
        total_steps=plan.total_steps,
        rates_source=plan.rates_source,
        chosen=None if chosen is None else build(chosen),
        stated=None if stated is None else stated[0],
        peak=plan.peak if stated is None else stated[1],
        strategies=[build(candidate, _why_not(candidate, chosen)) for candidate in strategies],
        pareto=[build(candidate) for candidate in plan.front if candidate.layout == ONE_GPU],
        refused=plan.refusals,
        events=plan.events,
    )


def _find_workload(recipe: Recipe, assumed: AssumedLengths, data: PreparedData | None) -> Workload:
    is_classifier = recipe.model.kind == "classifier"
    if assumed.without_data:
        if assumed.source_tokens is None or (assumed.target_tokens is None and not is_classifier):
            raise PlanError(
                "--no-data is given without lengths",
                "a plan needs the lengths of the texts, from the data or from options",
                "Add --source-tokens 512 --target-tokens 64",
            )
        return assume_workload(
            recipe.train.examples_per_step or 1,
            assumed.source_tokens,
            assumed.target_tokens or 1,
            is_classifier=is_classifier,
            total_steps=recipe.train.steps or 1,
        )
    assert data is not None
    split, train = data.splits["train"], recipe.train
    batch = {"batch_examples": train.examples_per_step, "batch_tokens": train.batch_tokens}
    steps = tuple(Loader.split_epoch(split, 0, **batch, seed=recipe.seed))  # in the order that training uses
    targets = np.zeros_like(split.target_lengths) if is_classifier else split.target_lengths
    total_steps = train.steps or max(1, round(train.passes * len(steps)))
    workload = Workload(split.source_lengths, targets, steps, is_classifier, total_steps)
    return workload.with_longest(assumed.source_tokens, assumed.target_tokens)


def _predict_stated(request: PlanRequest, strategy: Strategy) -> tuple[PlannedStrategy, PeakBreakdown]:
    precision = choose_precision_name(strategy, request.target, request.allow)
    memory, tape, seconds = predict_strategy(request, strategy, precision)
    total = memory.total_bytes
    fits = memory.out_of_memory is None and total <= request.target.capacity_bytes
    short = total - request.target.capacity_bytes
    label = strategy.name if strategy.name != "default" else "the recipe's strategy"
    planned = PlannedStrategy(
        label=label,
        layout=str(ONE_GPU) if request.target.kind == "gpu" else _CPU,
        micro_batch_tokens=strategy.micro_batch_tokens,
        micro_batches=float(len(tape.parts)),
        predicted_bytes=total,
        predicted_step_seconds=seconds,
        fits=fits,
        overrides=[],
        why_not="" if fits else f"misses by {format_bytes(short)}" if short > 0 else str(memory.out_of_memory),
    )
    return planned, explain_peak(tape, label, memory, fits=fits)


def _why_not(candidate: PlanCandidate, chosen: PlanCandidate | None) -> str:
    if not candidate.fits:
        return f"misses by {format_bytes(candidate.total_bytes - candidate.capacity_bytes)}"
    if chosen is None or (candidate.variant, candidate.layout) == (chosen.variant, chosen.layout):
        return ""
    if candidate.layout != ONE_GPU:
        return "computed by formula; `seqfit train` does not choose it by itself"
    slower = candidate.step_seconds / chosen.step_seconds - 1
    return f"{format_share(slower)} slower" if slower > 0.005 else "no faster"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
