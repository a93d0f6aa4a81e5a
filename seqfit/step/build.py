"""Builds the step that trains a model: adapters and frozen parts, execution, optimizer; and how its batches are cut.

In: a model with its weights (or without: the planner hands over fake ones), a recipe's parts and a strategy. Out: a
`TrainStep` and what was decided on the way, for the run's events. Training and planning both go through here, so what
is planned is what runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from transformers import PreTrainedModel

from seqfit.data.batching import Batching, MicroBatchRule
from seqfit.model.adapters import add_adapters, choose_lora
from seqfit.model.freezing import freeze_parts
from seqfit.parallel.balance import estimate_block_times
from seqfit.parallel.pipeline import Pipeline
from seqfit.parallel.way import Pipelined, Replicated, Sharded, Way
from seqfit.parallel.world import ALONE, World
from seqfit.parallel.zero import Zero
from seqfit.recipe.schema import ModelRecipe, Recipe, TrainRecipe
from seqfit.step.execution import Execution, build_execution
from seqfit.step.fp16_safe import keep_outputs_in_fp32
from seqfit.step.optimizers import build_optimizer
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep
from seqfit.strategy.conflicts import check_processes
from seqfit.strategy.schema import Strategy

Events = list[tuple[str, str]]  # kind, message
Limits = tuple[int | None, int | None]  # of source and target tokens


@dataclass(frozen=True)
class BuiltStep:
    """A step, how its batches are to be cut, and what was decided."""

    step: TrainStep
    batching: Batching
    events: Events


def choose_weights(model: PreTrainedModel, recipe: ModelRecipe, strategy: Strategy) -> Events:
    """Puts adapters in and freezes what the recipe or the strategy says, in this order: adapters freeze the rest."""
    events: Events = []
    lora = choose_lora(recipe.lora, strategy.lora_rank)
    if lora is not None:
        events.append(("lora", add_adapters(model, lora)))
    frozen = [*dict.fromkeys([*recipe.freeze, *strategy.freeze])]
    if frozen:
        events.append(("freeze", freeze_parts(model, frozen).text))
    return events


def build_step(
    model: PreTrainedModel,
    train: TrainRecipe,
    strategy: Strategy,
    precision: Precision,
    *,
    device: torch.device | None = None,
    world: World = ALONE,
    lengths: tuple[float, float] = (1.0, 1.0),
) -> BuiltStep:
    """The step of a model on its device. `device` is the one to choose kernels for, if it isn't there: in a plan.

    `lengths`: source and target tokens of an average example, which stages of equal time are cut by.
    """
    check_processes(strategy, world.size)
    device = device or precision.device
    execution = build_execution(model, strategy, train, device)
    way = _build_way(execution, strategy, precision, world, lengths)
    learner = way.pipeline if isinstance(way, Pipelined) else execution.model
    optimizer, reason = build_optimizer(
        learner,
        train.optimizer,
        train.learning_rate,
        kernel=strategy.optimizer_kernel,
        override=strategy.optimizer,
        device=device,
    )
    if isinstance(way, Zero):
        optimizer = way.start(optimizer, train.clip_norm)
    events = [*execution.events, ("optimizer", reason)]
    if world.size > 1:
        events.append(("parallel", f"{way.name} over {world.size} processes"))
    if precision.name == "fp16":
        events += [("precision", text) for text in [keep_outputs_in_fp32(model, device)] if text]
    step = TrainStep(
        learner,
        optimizer,
        precision,
        train.clip_norm,
        way=way,
        in_backward=strategy.optimizer_in_backward,
        asks_host=train.when_not_finite != "stop",
    )
    return BuiltStep(step, execution.batching, events)


def _build_way(
    execution: Execution, strategy: Strategy, precision: Precision, world: World, lengths: tuple[float, float]
) -> Way:
    """As the strategy says; `auto` is one copy of the model in each process."""
    model = execution.model
    if world.size == 1:
        return Way(model)
    if strategy.parallel == "fsdp" and strategy.sharding != "fsdp2":
        stage: Literal[2, 3] = 2 if strategy.sharding == "zero2" else 3
        return Zero(model, world, precision.device, stage=stage, precision=precision.name, offload=strategy.offload)
    if strategy.parallel == "fsdp":
        return Sharded(
            model,
            world,
            precision.device,
            precision=precision.name,
            offload=strategy.offload,
            compiled=strategy.compile,
        )
    if strategy.parallel == "pipeline":
        by_time = strategy.pipeline_balance == "time"
        pipeline = Pipeline(
            model.model,
            execution.rule,
            execution.ragged,
            schedule=strategy.pipeline_schedule,
            costs=estimate_block_times(model.model, *lengths) if by_time else None,
        )
        return Pipelined(pipeline.to(precision.device), world)
    return Replicated(model, world)


def padding_limits(recipe: Recipe) -> Limits:
    """What batches of `max_length` are padded to; a classifier has no targets."""
    target_tokens = None if recipe.model.kind == "classifier" else recipe.task.max_target_tokens
    return recipe.task.max_source_tokens, target_tokens


def build_rule(strategy: Strategy, batching: Batching, limits: Limits) -> MicroBatchRule:
    """How micro-batches are cut and padded."""
    return MicroBatchRule(
        batching=batching,
        tokens=strategy.micro_batch_tokens,
        examples=strategy.micro_batch_examples,
        pad_multiple=strategy.pad_multiple,
        pad_source_tokens=limits[0],
        pad_target_tokens=limits[1],
    )
