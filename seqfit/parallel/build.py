"""Builds the step that trains a model: adapters and frozen parts, execution, parallel strategy, optimizer.

In: a model with its weights (or without: the planner hands over fake ones), a recipe's parts and a strategy. Out: a
`TrainStep`, how its batches are split (packed or padded), and what was decided on the way, for the run's events.
Training and planning both go through here, so what is planned is what runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.data import MicroBatchRule
from seqfit.hardware import set_malloc_policy
from seqfit.model import LossModel, LossRule, PackedModel, family_of
from seqfit.parallel.deepspeed import DeepSpeedStrategy
from seqfit.parallel.distributed import DdpStrategy, FsdpStrategy
from seqfit.parallel.execution import compile_blocks, enable_recompute, keep_outputs_in_fp32
from seqfit.parallel.pipeline import Pipeline, PipelineStrategy
from seqfit.parallel.stages import estimate_block_times
from seqfit.parallel.world import SINGLE_PROCESS, World
from seqfit.recipe import Recipe, TrainRecipe
from seqfit.rundir import EventKind, records
from seqfit.step import ParallelStrategy, Precision, TrainStep, build_optimizer
from seqfit.strategy import Batching, Strategy, check_processes

SHORT_ON_CPU, SHORT_ON_GPU = 32, 512  # tokens


@dataclass(frozen=True)
class Execution:
    model: LossModel
    batching: Batching
    events: records.Events  # what was changed, and what differs from the strategy
    rule: LossRule
    packed: PackedModel | None


def choose_blockwise_above(attention: str, device: torch.device) -> int:
    """The length up to which torch's own attention is used, on segments that are padded only for it.

    For short segments the number of calls matters, and torch's has fewer. On a CPU blockwise attention is faster from
    64 tokens on (benchmarks/attention); on a GPU calls cost more, but none has been measured.
    """
    if attention == "auto":
        return SHORT_ON_CPU if device.type == "cpu" else SHORT_ON_GPU
    return 0 if attention == "blockwise" else sys.maxsize


def build_execution(model: PreTrainedModel, strategy: Strategy, train: TrainRecipe, device: torch.device) -> Execution:
    """Apply the strategy to the model; what is not available is an event, never left out silently."""
    events: records.Events = []
    blocks = enable_recompute(model, strategy.recompute)
    if blocks:
        recomputed = f"gradient checkpointing: activations of {blocks} blocks are recomputed in the backward pass"
        events.append((EventKind.RECOMPUTE, recomputed))
    batching, packed = strategy.batching, None
    reason = family_of(model).why_not_packed(model)
    if batching == "packed" and reason is not None:
        batching = "grouped"
        events.append(records.FallbackEvent("batching", "padded batches, grouped by length", reason))
    elif batching == "packed":
        lean_on = None if strategy.compile else device  # it fuses these parts by itself, and can't trace numpy
        packed = PackedModel(model, choose_blockwise_above(strategy.attention, device), lean_on=lean_on)
    if packed is None and strategy.attention == "eager":
        model.set_attn_implementation("eager")
    if device.type == "cpu":
        arranged = set_malloc_policy(strategy.host_memory)
        if arranged is not None:
            events.append((EventKind.MEMORY, arranged))
    if strategy.compile:
        events.append((EventKind.COMPILE, f"{compile_blocks(model, device)} blocks, compiled in the first steps"))
    rule = LossRule(train.label_smoothing, train.z_loss, chunked=strategy.loss == "chunked")
    return Execution(LossModel(model, rule, packed), batching, events, rule, packed)


PaddingLimits = tuple[int | None, int | None]  # of source and target tokens


@dataclass(frozen=True)
class BuiltStep:
    step: TrainStep
    batching: Batching
    events: records.Events


def build_step(
    model: PreTrainedModel,
    train: TrainRecipe,
    strategy: Strategy,
    precision: Precision,
    *,
    device: torch.device | None = None,
    world: World = SINGLE_PROCESS,
    lengths: tuple[float, float] = (1.0, 1.0),
    before_communication: Callable[[], None] | None = None,
) -> BuiltStep:
    """The step of a model on its device. `device`: in a plan, the one to choose kernels for, which isn't here.

    `lengths`: source and target tokens of an average example, for pipeline stages of equal time.
    `before_communication` is called once per step before the first collective (seqfit.step.step).
    """
    check_processes(strategy, world.size)
    device = device or precision.device
    execution = build_execution(model, strategy, train, device)
    reasons: list[str] = []

    def make_optimizer(trained: nn.Module) -> torch.optim.Optimizer:
        optimizer, reason = build_optimizer(
            trained,
            train.optimizer,
            train.learning_rate,
            kernel=strategy.optimizer_kernel,
            override=strategy.optimizer,
            device=device,
        )
        reasons.append(reason)
        return optimizer

    parallel = _build_parallel(
        execution, strategy, precision, world, lengths, train.clip_norm, make_optimizer, before_communication
    )
    optimizer = parallel.optimizer or make_optimizer(parallel.trained)
    events: records.Events = [*execution.events, *((EventKind.OPTIMIZER, reason) for reason in reasons)]
    if world.size > 1:
        events.append(records.ParallelEvent(parallel.name, world.size))
    if precision.name == "fp16":
        events += [(EventKind.PRECISION, text) for text in [keep_outputs_in_fp32(model, device)] if text]
    step = TrainStep(
        parallel.trained,
        optimizer,
        precision,
        train.clip_norm,
        parallel=parallel,
        in_backward=strategy.optimizer_in_backward,
        asks_host=train.when_not_finite != "stop",
    )
    return BuiltStep(step, execution.batching, events)


def _build_parallel(
    execution: Execution,
    strategy: Strategy,
    precision: Precision,
    world: World,
    lengths: tuple[float, float],
    clip_norm: float | None,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    before_communication: Callable[[], None] | None,
) -> ParallelStrategy:
    """By strategy.parallel; `auto` is DDP: one copy of the model per process."""
    model, device = execution.model, precision.device
    if world.size == 1:
        return ParallelStrategy(model)
    if strategy.parallel == "fsdp" and strategy.sharding != "fsdp2":
        return DeepSpeedStrategy(
            model,
            world,
            device,
            stage=2 if strategy.sharding == "zero2" else 3,
            precision=precision.name,
            offload=strategy.offload,
            build_optimizer=partial(make_optimizer, model),
            clip_norm=clip_norm,
            before_communication=before_communication,
        )
    if strategy.parallel == "fsdp":
        return FsdpStrategy(
            model,
            world,
            device,
            precision=precision.name,
            offload=strategy.offload,
            compiled=strategy.compile,
            before_communication=before_communication,
        )
    if strategy.parallel == "pipeline":
        by_time = strategy.pipeline_balance == "time"
        pipeline = Pipeline(
            model.model,
            execution.rule,
            execution.packed,
            schedule=strategy.pipeline_schedule,
            costs=estimate_block_times(model.model, *lengths) if by_time else None,
        )
        return PipelineStrategy(pipeline.to(device), world, before_communication)
    return DdpStrategy(model, world, before_communication)


def padding_limits(recipe: Recipe) -> PaddingLimits:
    """The lengths that `max_length` pads batches to; a classifier has no targets."""
    target_tokens = None if recipe.model.kind == "classifier" else recipe.task.max_target_tokens
    return recipe.task.max_source_tokens, target_tokens


def build_rule(strategy: Strategy, batching: Batching, limits: PaddingLimits) -> MicroBatchRule:
    return MicroBatchRule(
        batching=batching,
        tokens=strategy.micro_batch_tokens,
        examples=strategy.micro_batch_examples,
        pad_multiple=strategy.pad_multiple,
        pad_source_tokens=limits[0],
        pad_target_tokens=limits[1],
    )
