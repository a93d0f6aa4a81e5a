"""What a traced strategy needs on a layout, for micro-batches of any size: memory and time, in milliseconds.

In: a `PlanRequest`, a variant and its `StepModel`. Out: a `PlanCandidate` for each size and layout: an estimate, from
polynomials of the shape, for several GPUs of what their busiest rank gets (`ranks`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from seqfit.model import ModelConfig
from seqfit.parallel import PaddingLimits, build_rule
from seqfit.planning.candidates import Variant
from seqfit.planning.cluster import OFFLOAD, ONE_GPU, GpuLayout, Link, build_card_link
from seqfit.planning.evaluation_cost import EvaluationModel, Evaluations, add_lasting
from seqfit.planning.fake_step import StepSpec
from seqfit.planning.ranks import NCCL_BYTES, RankRows, RankShare, count_shares, predict_ranks
from seqfit.planning.shape import Shape, Workload
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import Target
from seqfit.planning.timing import check_time_limit
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.strategy import Batching, Strategy

HOST_BYTES = 600 * 2**20  # of a Python process with torch and transformers on a CPU, before the model
SMALLEST_BUDGET, LARGEST_BUDGET = 512, 131_072  # tokens per micro-batch
MARGIN = 1.04  # what the allocator adds before it is replayed


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
    stated: tuple[Strategy, str] | None = None  # the recipe's own strategy, and its precision
    evaluations: Evaluations | None = None  # during training
    lengths_are_assumed: bool = False  # all alike, so that nothing is known of padding

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
    host_bytes: int = 0  # of the machine, for what the layout keeps there
    evaluation_bytes: int = 0  # which the total is at least
    evaluation_seconds: float = 0.0  # of one evaluation

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.capacity_bytes


def try_budgets(
    request: PlanRequest,
    variant: Variant,
    model: StepModel,
    layouts: Sequence[GpuLayout],
    budgets: Sequence[int],
) -> Iterator[PlanCandidate]:
    rates = request.target.rates(variant.precision)
    rows = RankRows(request.workload, request.model_config, request.workload.sample())
    for budget in budgets:
        check_time_limit()
        strategy = variant.strategy.model_copy(update={"micro_batch_tokens": budget})
        split = partial(request.split, strategy, model.batching)
        for rank in predict_ranks(model, rates, rows, split, layouts, partial(find_link, request.target)):
            yield build_candidate(
                request, variant, model, strategy, rank.layout, rank.peak_bytes, rank.step_seconds, rank.micro_batches
            )


def build_candidate(
    request: PlanRequest,
    variant: Variant,
    model: StepModel,
    strategy: Strategy,
    layout: GpuLayout,
    peak_bytes: int,
    step_seconds: float,
    micro_batches: float,
) -> PlanCandidate:
    """`peak_bytes`: of a rank's tensors in a step."""
    evaluation, evaluation_bytes = find_evaluation(request, variant), 0
    if evaluation is not None:
        allocated_bytes = add_lasting(evaluation.working_bytes, layout, model.lasting_bytes, model.gradient_bytes)
        evaluation_bytes = add_overhead(request.target, layout, allocated_bytes)
    rates = request.target.rates(variant.precision)
    return PlanCandidate(
        variant,
        strategy.model_copy(update=layout.fields),
        layout,
        max(add_overhead(request.target, layout, peak_bytes), evaluation_bytes),
        step_seconds,
        micro_batches,
        request.target.capacity_bytes,
        model.kept_bytes if layout.parallel == OFFLOAD else 0,
        evaluation_bytes,
        0.0 if evaluation is None else evaluation.seconds(rates) / layout.count,
    )


_EVALUATED = ("lora_rank", "batching")  # fields that an evaluation depends on, besides attention=eager
_EAGER = "attention", "eager"


def find_evaluation(request: PlanRequest, variant: Variant) -> EvaluationModel | None:
    """None where a training has none."""
    if request.evaluations is None:
        return None
    plain = strip_variant(variant)
    return request.evaluations.model_of((request.target.rules, plain), lambda: build_spec(request, plain))


def strip_variant(variant: Variant) -> Variant:
    """What an evaluation depends on."""
    kept = [(name, value) for name, value in variant.fields if name in _EVALUATED or (name, value) == _EAGER]
    return Variant(tuple(kept), variant.precision, variant.vocabulary)


def build_spec(request: PlanRequest, variant: Variant) -> StepSpec:
    model_config = request.model_config
    if variant.vocabulary is not None:
        model_config = replace(model_config, config=copy.deepcopy(model_config.config))
        model_config.config.vocab_size = variant.vocabulary
    strategy = variant.traced.strategy
    return StepSpec(model_config, request.model, request.train, strategy, variant.precision, request.target.rules)


def find_share(
    request: PlanRequest, variant: Variant, model: StepModel, layout: GpuLayout, budget: int
) -> tuple[RankShare, list[list[Shape]]]:
    """The micro-batches of the busiest rank, in some steps."""
    rows = RankRows(request.workload, request.model_config, request.workload.sample())
    strategy = variant.strategy.model_copy(update={"micro_batch_tokens": budget})
    steps = request.split(strategy, model.batching, rows.find(count_shares(layout))[0])
    return RankShare(model, request.target.rates(variant.precision), steps), steps


def predict_share(request: PlanRequest, share: RankShare, layout: GpuLayout) -> tuple[int, float]:
    """Peak bytes of a rank's tensors, and seconds of a step."""
    seconds, _ = share.work(layout).predict_step(layout, find_link(request.target, layout.count))
    return sum(share.find_parts(layout).values()), seconds


def find_link(target: Target, count: int) -> Link:
    return Link(math.inf, 0.0) if target.card is None else build_card_link(target.card, count)


def add_overhead(target: Target, layout: GpuLayout, peak_bytes: int) -> int:
    """What a process holds besides the tensors of the peak."""
    if target.kind == "cpu":
        return peak_bytes + HOST_BYTES
    shared = NCCL_BYTES if layout.count > 1 else 0
    return int(peak_bytes * MARGIN) + 2 * target.rules.workspace_bytes + target.context_bytes + shared


def list_budgets(request: PlanRequest) -> list[int]:
    stated = request.fixed.get("micro_batch_tokens")
    if stated is not None:
        return [int(stated)]
    workload = request.workload
    most = max(workload.real_tokens([step]) for step in workload.largest())
    longest = int((workload.source_lengths + workload.target_lengths).max())
    budgets = [SMALLEST_BUDGET]
    while budgets[0] < longest:  # a smaller one would not be split any further
        budgets[0] *= 2
    while budgets[-1] < min(most, LARGEST_BUDGET):
        budgets.append(budgets[-1] * 3 // 2 if budgets[-1] & (budgets[-1] - 1) == 0 else budgets[-1] * 4 // 3)
    return budgets


def pareto_front(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    """From the fastest to the smallest; each is smaller than all faster ones."""
    front: list[PlanCandidate] = []
    for candidate in sorted(candidates, key=lambda item: (item.step_seconds, item.total_bytes)):
        if not front or candidate.total_bytes < front[-1].total_bytes * 0.99:
            front.append(candidate)
    return front


def find_best_of_each(candidates: Sequence[PlanCandidate]) -> list[PlanCandidate]:
    groups: dict[tuple[Variant, GpuLayout], list[PlanCandidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.variant, candidate.layout), []).append(candidate)
    return [
        min(group, key=lambda c: (0, c.step_seconds) if c.fits else (1, c.total_bytes)) for group in groups.values()
    ]
