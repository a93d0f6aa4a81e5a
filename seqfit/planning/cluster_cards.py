"""How a recipe would scale on cards that are not here, up to hundreds of them. Everything that goes out is predicted.

In: a recipe, a card, how many at most, what connects them. Out: a row for 1, 2, 4, ... cards, for each way, strong and
weak. The step of one card is the planner's (`StepModel`): its kernels at the card's rates. A rank of n runs the same
kernels on its own share of the batch, so what does not shrink with it (launches, the update, one long example) stays:

    global batch of 8 examples     1 card: 8, 80 ms     4 cards: 2 each, 24 ms     16 cards: 8 have one, 8 have none

Cards of one machine exchange over its links; a ring over several machines is as slow as the network between them.
Nothing of this has been compared with a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import numpy.typing as npt

from seqfit.data.batching import TOKENS, CostModel, assign_rows
from seqfit.errors import RecipeError
from seqfit.model.flops import build_cost_model, read_model_shape
from seqfit.parallel.build import build_rule
from seqfit.planning.candidates import Variant, build_variant, find_refusals
from seqfit.planning.cluster import (
    OFFLOAD,
    ONE_GPU,
    Cluster,
    LayoutCost,
    ParallelKind,
    RankFiguresPredicted,
    RankWork,
    ScalingRow,
    compare_rates,
    list_counts,
    memory_change,
    predict_share,
)
from seqfit.planning.eight_bit import shrink_model
from seqfit.planning.rank_work import build_work, count_layers, sum_weight_bytes
from seqfit.planning.request import build_request, choose_precision_name
from seqfit.planning.search import PlanRequest, check_precision, search_quickly, trace_variant
from seqfit.planning.shape import Shape
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import Target, card_target
from seqfit.planning.timing import Rates
from seqfit.progress import Progress
from seqfit.recipe.mistakes import report_mistakes
from seqfit.recipe.schema import Recipe, TrainRecipe
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import Strategy

_SAMPLED_STEPS = 12  # of the data's, whose mean is a step


@dataclass(frozen=True)
class CardScaling:
    """The answer, all of it predicted."""

    card: str
    capacity_bytes: int
    strategy: str  # as tables name it
    rates_source: str
    examples: float  # of a global batch, on average
    rows: list[ScalingRow]


@dataclass(frozen=True)
class _Traced:
    """A step of the recipe on one card, as a function of the batch."""

    question: PlanRequest
    strategy: Strategy
    variant: Variant
    model: StepModel
    rates: Rates
    cost: CostModel
    steps: list[npt.NDArray[np.int64]]  # rows of some global batches


@dataclass(frozen=True)
class _Share:
    """What the busiest rank does in a step."""

    step_seconds: float  # alone, with an update of all weights
    imbalance: float
    cut: list[list[Shape]]


def predict_cards(
    recipe: Recipe, cluster: Cluster, ways: Sequence[str], progress: Progress = lambda *_: None
) -> CardScaling:
    """Rows of 1, 2, 4, ... cards, by ways that share the batch: a pipeline ends with the blocks of a model.

    The strategy is the recipe's; where it has none, what training would choose for one card.
    """
    target, stated = card_target(cluster.card, 1), load_strategy(recipe)
    check_precision(target, stated.precision)  # before the data are read
    spreads = [] if cluster.upto == 1 else [_choose_spread(stated, way, cluster.upto) for way in ways]
    _check_spreads(stated, spreads, recipe.train)
    traced = _trace(recipe, target, spreads, progress)
    counts = list_counts(cluster.upto)
    shares: dict[int, _Share] = {}
    slowest = inf
    for count in counts:
        shares[count] = _deal(traced, count, slowest)
        slowest = shares[count].step_seconds
    rows = [
        _build_row(traced, cluster, way, kind, shares, count)
        for way in ways
        for kind in ("strong", "weak")
        for count in counts
    ]
    return CardScaling(
        card=cluster.card.name,
        capacity_bytes=cluster.card.usable_bytes,
        strategy=f"{traced.variant.label}, micro-batches of {traced.strategy.micro_batch_tokens} tokens",
        rates_source=traced.rates.source,
        examples=_count_examples(traced),
        rows=rows,
    )


def _choose_spread(strategy: Strategy, way: str, count: int) -> LayoutCost:
    """Offload is a strategy's own, and only with fsdp."""
    if count == 1:
        return ONE_GPU
    return LayoutCost(OFFLOAD if strategy.offload and way == "fsdp" else way, count)


def _check_spreads(strategy: Strategy, spreads: Sequence[LayoutCost], train: TrainRecipe) -> None:
    """As training refuses them."""
    reasons = dict.fromkeys(reason for spread in spreads for reason in find_refusals(strategy, spread, train))
    if reasons:
        raise RecipeError(report_mistakes("The strategy", list(reasons)))


def _trace(recipe: Recipe, target: Target, spreads: Sequence[LayoutCost], progress: Progress) -> _Traced:
    """`spreads`: what the strategy has to be open to, where it is chosen here."""
    question = replace(build_request(recipe, target, progress=progress), spreads=(ONE_GPU,))
    chosen = search_quickly(question, spreads) if recipe.strategy is None else None
    strategy = load_strategy(recipe) if chosen is None else chosen[0]
    precision = choose_precision_name(strategy, target, question.allow)
    variant = build_variant(strategy, precision)
    model = trace_variant(question, variant.traced)
    shape, _ = read_model_shape(question.outline.config.to_dict())
    every = max(1, len(question.workload.steps) // _SAMPLED_STEPS)
    return _Traced(
        question=question,
        strategy=strategy,
        variant=variant,
        model=model if variant == variant.traced else shrink_model(model),
        rates=target.rates(precision),
        cost=TOKENS if shape is None else build_cost_model(shape),
        steps=[*question.workload.steps[::every][:_SAMPLED_STEPS]],
    )


def _deal(traced: _Traced, count: int, slowest: float) -> _Share:
    """The rows of each step's busiest rank, as training deals them out, cut into micro-batches.

    `slowest`: what a larger share takes. Polynomials that were fitted to several examples are some per cent off where
    launches of kernels are all that counts, and one example would take longer than two.
    """
    workload = traced.question.workload
    busiest, imbalances = [], []
    for rows in traced.steps:
        costs = traced.cost.costs(workload.source_lengths[rows], workload.target_lengths[rows])
        cost_of = dict(zip(rows.tolist(), costs.tolist(), strict=True))
        dealt = assign_rows(rows, costs, count)
        loads = [sum(cost_of[row] for row in part.tolist()) for part in dealt]
        busiest.append(dealt[int(np.argmax(loads))])
        imbalances.append(max(loads) / (sum(loads) / count) - 1)
    rule = build_rule(traced.strategy, traced.model.batching, traced.question.limits)
    cut = workload.cut(rule, busiest)
    return _Share(
        step_seconds=min(slowest, float(traced.model.step_seconds(cut, traced.rates).mean())),
        imbalance=float(np.mean(imbalances)),
        cut=cut,
    )


def _build_row(
    traced: _Traced, cluster: Cluster, way: str, kind: ParallelKind, shares: dict[int, _Share], count: int
) -> ScalingRow:
    """Weak scaling gives each rank what one card has, so its share is that of one."""
    share, grows = shares[count if kind == "strong" else 1], count if kind == "weak" else 1
    work, weight_bytes = _build_work(traced, share), sum_weight_bytes(traced.model)
    spread = _choose_spread(traced.strategy, way, count)
    seconds, waiting = predict_share(spread, work, weight_bytes, cluster.card, cluster.link(count))
    tokens = traced.question.workload.real_tokens(traced.steps) / len(traced.steps)
    rate = tokens * grows / seconds
    figures = RankFiguresPredicted(
        step_seconds=seconds,
        tokens_per_second=rate,
        efficiency=compare_rates(rate, count, tokens / shares[1].step_seconds),
        communication_share=waiting / seconds,
        imbalance=share.imbalance,
        highest_bytes=_predict_bytes(traced, spread, share),
    )
    examples = _count_examples(traced) * grows
    note = ", ".join(_find_notes(figures, cluster, examples, count))
    return ScalingRow(way, count, kind, examples, measured=None, predicted=figures, note=note)


def _build_work(traced: _Traced, share: _Share) -> RankWork:
    return build_work(
        traced.model,
        share.cut,
        share.step_seconds,
        traced.rates,
        precision=traced.variant.precision,
        layers=count_layers(traced.question.outline.config),
    )


def _predict_bytes(traced: _Traced, spread: LayoutCost, share: _Share) -> int:
    """Of one card: the largest micro-batch on the allocator, changed by what the way splits or keeps longer."""
    target, model = traced.question.target, traced.model
    shape, alone = model.largest(share.cut)
    memory = model.measure([[shape] if alone else [shape, shape]], target.rules, target.context_bytes, None)
    parts = model.parts(shape, alone=alone)
    return memory.total_bytes + memory_change(spread, parts, model.largest_block_bytes, model.gradient_bytes)


def _find_notes(figures: RankFiguresPredicted, cluster: Cluster, examples: float, count: int) -> Iterator[str]:
    if figures.highest_bytes is not None and figures.highest_bytes > cluster.card.usable_bytes:
        yield "does not fit"
    if count > examples:
        yield f"{count - int(examples)} without an example"


def _count_examples(traced: _Traced) -> float:
    return sum(map(len, traced.steps)) / len(traced.steps)
