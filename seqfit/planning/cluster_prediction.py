"""How a recipe would scale on GPUs that are not available here, up to hundreds of them. All of it is predicted.

In: a recipe, a card, how many at most, what connects them. Out: a row for 1, 2, 4, ... GPUs, for each parallel
strategy, strong and weak; or the prediction of one layout, this machine's CPU included. The step of one GPU is the
planner's (`StepModel`): its kernels at the card's rates. A rank of n runs the same kernels on its own share of the
batch, so what does not shrink with it (launches, the update, one long example) stays:

    global batch of 8 examples     1 GPU: 8, 80 ms     4 GPUs: 2 each, 24 ms     16 GPUs: 8 have one, 8 have none

GPUs of one machine communicate over its links; a ring over several machines is as slow as the network between them.
None of this has been compared with a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from seqfit.errors import RecipeError
from seqfit.hardware import Card, probe_machine
from seqfit.planning.candidates import Variant, build_variant, find_refusals
from seqfit.planning.cluster import (
    OFFLOAD,
    ONE_GPU,
    Cluster,
    GpuLayout,
    ParallelKind,
    ScalingFigures,
    ScalingRow,
    build_card_link,
    list_counts,
)
from seqfit.planning.memory import sum_categories
from seqfit.planning.placement import PlanRequest
from seqfit.planning.ranks import NCCL_BYTES, RankRows, RankShare
from seqfit.planning.report import LayoutPrediction
from seqfit.planning.request import build_request, choose_precision_name
from seqfit.planning.search import check_precision, model_variant, predict_strategy, search_quickly
from seqfit.planning.shape import Shape
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import Target, card_target, cpu_target
from seqfit.planning.timing import Rates
from seqfit.progress import Progress
from seqfit.recipe import Recipe, report_mistakes
from seqfit.strategy import Strategy, check_processes, load_strategy
from seqfit.units import format_bytes

_SAMPLED_STEPS = 12  # of the data's, whose mean is a step


@dataclass(frozen=True)
class ClusterPrediction:
    card: str
    capacity_bytes: int
    strategy: str  # as tables name it
    rates_source: str
    examples: float  # of a global batch, on average
    rows: list[ScalingRow]


@dataclass(frozen=True)
class _Traced:
    """A step of the recipe on one GPU, as a function of the batch."""

    request: PlanRequest
    strategy: Strategy
    variant: Variant
    model: StepModel
    rates: Rates
    steps: list[npt.NDArray[np.int64]]  # rows of some global batches

    @property
    def examples(self) -> float:
        return sum(map(len, self.steps)) / len(self.steps)

    def split(self, steps: Sequence[npt.NDArray[np.int64]]) -> list[list[Shape]]:
        return self.request.split(self.strategy, self.model.batching, steps)

    def predict_memory(self, layout: GpuLayout, share: RankShare) -> tuple[int, dict[str, int]]:
        """Of each GPU, and the parts of its tensors' peak: what the allocator adds is that of one GPU."""
        target = self.request.target
        shapes = [[share.shape] if share.is_single else [share.shape] * 2]
        memory = self.model.measure(shapes, target.rules, target.context_bytes, None)
        added_bytes = memory.total_bytes - sum(share.find_parts(ONE_GPU).values())
        parts = share.find_parts(layout)
        return sum(parts.values()) + added_bytes + (NCCL_BYTES if layout.count > 1 else 0), parts


def predict_cluster(
    recipe: Recipe, cluster: Cluster, strategies: Sequence[str], progress: Progress = lambda *_: None
) -> ClusterPrediction:
    """Rows of 1, 2, 4, ... GPUs, for parallel strategies that share the batch: a pipeline ends with a model's blocks.

    The strategy is the recipe's; where it has none, what training would choose for one GPU.
    """
    target, stated = card_target(cluster.card, 1), load_strategy(recipe)
    check_precision(target, stated.precision)  # before the data are read
    most = cluster.max_gpus
    layouts = [] if most == 1 else [_choose_layout(stated, parallel, most) for parallel in strategies]
    reasons = dict.fromkeys(reason for layout in layouts for reason in find_refusals(stated, layout, recipe.train))
    if reasons:
        raise RecipeError(report_mistakes("The strategy", list(reasons)))
    traced = _trace(recipe, target, layouts, progress)
    counts = list_counts(most)
    rows = RankRows(traced.request.workload, traced.request.model_config, traced.steps)
    shares: dict[int, RankShare] = {}
    slowest = inf
    for count in counts:
        shares[count] = RankShare(traced.model, traced.rates, traced.split(rows.find(count)[0]), slowest)
        slowest = shares[count].seconds
    return ClusterPrediction(
        card=cluster.card.name,
        capacity_bytes=cluster.card.usable_bytes,
        strategy=f"{traced.variant.label}, micro-batches of {traced.strategy.micro_batch_tokens} tokens",
        rates_source=traced.rates.source,
        examples=traced.examples,
        rows=[
            _build_row(traced, cluster, parallel, kind, shares, rows, count)
            for parallel in strategies
            for kind in ("strong", "weak")
            for count in counts
        ],
    )


def predict_stated(recipe: Recipe, card: Card | None, count: int) -> LayoutPrediction:
    """The recipe's own strategy on one device, as ranks or as stages; without a card on this machine's CPU."""
    strategy = load_strategy(recipe)
    check_processes(strategy, count)
    if card is None or count == 1:
        return _predict_one(recipe, strategy, cpu_target(probe_machine()) if card is None else card_target(card, 1))
    if strategy.parallel == "pipeline":
        return _predict_pipeline(recipe, card, count)
    parallel = "ddp" if strategy.parallel == "auto" else strategy.parallel
    rows = predict_cluster(recipe, Cluster(card, count), [parallel]).rows
    figures = next(row.predicted for row in rows if row.kind == "strong" and row.processes == count)
    assert figures is not None
    assert figures.highest_bytes is not None
    fit = check_fit(figures.highest_bytes, card.usable_bytes)
    return LayoutPrediction(figures.highest_bytes, figures.step_seconds, figures.tokens_per_second, *fit, {})


def _predict_one(recipe: Recipe, strategy: Strategy, target: Target) -> LayoutPrediction:
    request = build_request(recipe, target)
    precision = choose_precision_name(strategy, target, request.allow)
    memory, tape, seconds = predict_strategy(request, strategy, precision)
    sampled = request.workload.sample()
    tokens = request.workload.real_tokens(sampled) / len(sampled)
    fit = check_fit(memory.total_bytes, target.capacity_bytes)
    if memory.out_of_memory is not None:
        fit = False, str(memory.out_of_memory)
    parts = sum_categories(tape.live_at_peak())  # on a card memory.parts has all gradients, also of a step in one piece
    return LayoutPrediction(memory.total_bytes, seconds, tokens / seconds, *fit, parts)


def check_fit(total_bytes: int, capacity_bytes: int) -> tuple[bool, str]:
    short_bytes = total_bytes - capacity_bytes
    return short_bytes <= 0, "" if short_bytes <= 0 else f"misses by {format_bytes(short_bytes)}"


def _predict_pipeline(recipe: Recipe, card: Card, count: int) -> LayoutPrediction:
    """From one GPU that has enough memory for the whole model: 1/n of memory and work, and stages that wait."""
    target, layout = card_target(card, 1), GpuLayout("pipeline", count)
    check_precision(target, load_strategy(recipe).precision)
    traced = _trace(recipe, target, [])
    sampled = traced.request.workload.sample()
    share = RankShare(traced.model, traced.rates, traced.split(sampled))
    seconds, _ = share.work(layout).predict_step(layout, build_card_link(card, count))
    total_bytes, parts = traced.predict_memory(layout, share)
    tokens = traced.request.workload.real_tokens(sampled) / len(sampled)
    fit = check_fit(total_bytes, card.usable_bytes)
    return LayoutPrediction(total_bytes, seconds, tokens / seconds, *fit, parts)


def _choose_layout(strategy: Strategy, parallel: str, count: int) -> GpuLayout:
    """Offload is a strategy's own, and only with fsdp."""
    if count == 1:
        return ONE_GPU
    return GpuLayout(OFFLOAD if strategy.offload and parallel == "fsdp" else parallel, count)


def _trace(
    recipe: Recipe, target: Target, layouts: Sequence[GpuLayout], progress: Progress = lambda *_: None
) -> _Traced:
    """`layouts`: what the strategy has to allow, where it is chosen here."""
    request = build_request(recipe, target, progress=progress)
    chosen = search_quickly(request, layouts) if recipe.strategy is None else None
    strategy = load_strategy(recipe) if chosen is None else chosen[0]
    precision = choose_precision_name(strategy, target, request.allow)
    variant = build_variant(strategy, precision)
    every = max(1, len(request.workload.steps) // _SAMPLED_STEPS)
    return _Traced(
        request=request,
        strategy=strategy,
        variant=variant,
        model=model_variant(request, variant),
        rates=target.rates(precision),
        steps=[*request.workload.steps[::every][:_SAMPLED_STEPS]],
    )


def _build_row(
    traced: _Traced,
    cluster: Cluster,
    parallel: str,
    kind: ParallelKind,
    shares: dict[int, RankShare],
    rows: RankRows,
    count: int,
) -> ScalingRow:
    """Weak scaling gives each rank what one GPU has, so its share is that of one."""
    shared, grows = (count, 1) if kind == "strong" else (1, count)
    share, layout = shares[shared], _choose_layout(traced.strategy, parallel, count)
    seconds, communication = share.work(layout).predict_step(layout, cluster.link(count))
    tokens = traced.request.workload.real_tokens(traced.steps) / len(traced.steps)
    rate = tokens * grows / seconds
    highest_bytes, _ = traced.predict_memory(layout, share)
    figures = ScalingFigures(
        step_seconds=seconds,
        tokens_per_second=rate,
        efficiency=rate / (count * (tokens / shares[1].seconds)),
        communication_share=communication / seconds,
        imbalance=rows.find(shared)[1],
        highest_bytes=highest_bytes,
    )
    examples = traced.examples * grows
    notes = ["does not fit"] if highest_bytes > cluster.card.usable_bytes else []
    if count > examples:
        notes.append(f"{count - int(examples)} without an example")
    return ScalingRow(parallel, count, kind, examples, measured=None, predicted=figures, note=", ".join(notes))
