"""What a Trainer script takes as it is: memory of each GPU, time per step, and the setting that the memory is due to.

In: a script's settings (`seqfit convert` reads them), the request of its plan. Out: a `ScriptPlan`. One GPU is traced
on fake tensors, as for any strategy; several of them follow from that trace, by what the Trainer does with them:

    how it is started                  layout            memory of the first GPU, and of each other
    one process, one GPU in sight      one GPU           M
    one process, several GPUs          nn.DataParallel   max(M, W + S + 2G)    M without S, of one micro-batch
    torchrun, accelerate, deepspeed    ddp               M + gradients that stay, and NCCL
    model.parallelize(), device_map    one at a time     what is not in blocks, and 1/n of the blocks

W weights, G gradients, S optimizer state. nn.DataParallel copies the weights to the other GPUs in each forward, where
their gradients are complete before they are summed on the first GPU: for a moment it holds them twice. The outputs that
it gathers there are freed before the backward, whose peak is the higher one. None of this has run on several GPUs.

The cause is the largest part of the traced peak, with the setting that it grows with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from seqfit.conversion import ScriptSettings
from seqfit.model import find_place
from seqfit.planning.cluster import DATAPARALLEL, ONE_GPU, GpuLayout, build_card_link
from seqfit.planning.device_rules import DeviceRules
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.layout_memory import find_peak
from seqfit.planning.memory import Memory, explain_peak, is_scores
from seqfit.planning.placement import PlanRequest
from seqfit.planning.ranks import NCCL_BYTES
from seqfit.planning.report import ScriptPlan
from seqfit.planning.shape import Shape
from seqfit.planning.step_model import StepModel, model_step
from seqfit.planning.tape import GRADIENTS, LOSS, STATE, WEIGHTS, MemoryBlock, Tape
from seqfit.planning.template import shrink_tape, shrink_template
from seqfit.planning.trainer_step import (
    HALF_WEIGHTS,
    build_script_strategy,
    count_examples,
    find_limits,
    find_weights_type,
    has_sdpa,
    has_small_state,
    name_optimizer,
    quantize_tape,
    quantize_template,
    split_all_rows,
    split_rows,
)
from seqfit.recipe import Recipe
from seqfit.strategy import Strategy
from seqfit.units import format_bytes, format_count

NAIVE = "one GPU at a time"
_REPLAYED_STEPS = 24


@dataclass(frozen=True)
class _Step:
    """The script's step on one GPU."""

    steps: list[list[Shape]]
    model: StepModel
    tape: Tape
    memory: Memory


ScriptTraces = dict[DeviceRules, tuple[FakeStep, StepModel]]


def predict_script(
    settings: ScriptSettings,
    recipe: Recipe,
    request: PlanRequest,
    traces: ScriptTraces,
    *,
    is_assumed: bool,
    is_whole: bool = False,
) -> ScriptPlan:
    """`traces`: of other targets, found there and added. `is_assumed`: lengths are not the data's. `is_whole`: all
    steps of the workload are replayed in their order; else some of them, and the largest last."""
    target = request.target
    model_config = request.model_config
    strategy = build_script_strategy(settings, model_config.config, has_sdpa=has_sdpa(model_config))
    step = _trace(settings, strategy, request, traces, is_assumed=is_assumed, is_whole=is_whole)
    layout = find_script_layout(settings, target.count if target.kind == "gpu" else 1)
    each = _share_memory(layout, step, settings, request)
    seconds = _share_time(layout, step, request, settings)
    short = max(each) - target.capacity_bytes
    out_of_memory = step.memory.out_of_memory if layout.parallel != NAIVE else None
    fits = short <= 0 and out_of_memory is None
    examples = count_examples(settings, layout.count if layout.parallel != NAIVE else 1)
    label = f"{settings.name} as it is"
    peak = explain_peak(step.tape, label, step.memory, fits=fits)
    setting, cause, cause_bytes = _name_cause(settings, step, request)
    return ScriptPlan(
        name=settings.name,
        settings=list(_describe(settings, strategy, step, request)),
        layout=_name_layout(layout),
        predicted_bytes=each,
        capacity_bytes=target.capacity_bytes,
        predicted_step_seconds=seconds,
        examples_per_step=examples,
        total_steps=_count_steps(recipe, request, examples),
        fits=fits,
        why_not="" if fits else f"misses by {format_bytes(short)}" if short > 0 else str(out_of_memory),
        setting=setting,
        cause=cause,
        cause_bytes=cause_bytes,
        assumptions=list(_list_assumptions(settings, strategy, layout, request)),
        peak=peak,
    )


def _trace(
    settings: ScriptSettings,
    strategy: Strategy,
    request: PlanRequest,
    traces: ScriptTraces,
    *,
    is_assumed: bool,
    is_whole: bool,
) -> _Step:
    target = request.target
    limits = find_limits(settings)
    if is_whole:
        steps = split_all_rows(settings, strategy, request.workload, limits)
    else:
        steps = split_rows(settings, strategy, request.workload, limits, is_assumed=is_assumed)
    if target.rules not in traces:
        traced, weights = "fp32" if settings.precision == "fp32" else "bf16", _weights_type(settings, request)
        spec = StepSpec(request.model_config, request.model, request.train, strategy, traced, target.rules, weights)
        fake = FakeStep(spec)
        traces[target.rules] = fake, model_step(fake, steps)
    fake, model = traces[target.rules]
    if has_small_state(settings):
        model = model.changed(shrink_template)
    if settings.quantized_bits is not None:
        model = model.changed(partial(quantize_template, bits=settings.quantized_bits))
    shape, single = model.largest(steps)
    largest = [shape] if single else [shape, shape]
    played = steps if is_whole else [*steps[:_REPLAYED_STEPS], *steps[-2:], largest]
    memory = model.measure(played, target.rules, target.context_bytes, None)
    if target.kind == "gpu" and memory.total_bytes > target.capacity_bytes:
        # What does not fit with the memory that the allocator keeps may fit without it.
        within = model.measure(played, target.rules, target.context_bytes, target.capacity_bytes)
        memory = within if within.out_of_memory is None else memory
    tape = fake.trace([shape] if single else [shape, shape])
    tape = shrink_tape(tape) if has_small_state(settings) else tape
    if settings.quantized_bits is not None:
        tape = quantize_tape(tape, settings.quantized_bits)
    return _Step(steps, model, tape, memory)


def _weights_type(settings: ScriptSettings, request: PlanRequest) -> str:
    return find_weights_type(settings, request.model_config.raw)


def find_script_layout(settings: ScriptSettings, gpus: int) -> GpuLayout:
    seen = min(gpus, settings.visible_gpus or gpus)
    if settings.starts_all or (settings.processes or 1) > 1:
        count = settings.processes or seen
        return GpuLayout("ddp", count) if count > 1 else ONE_GPU
    if seen == 1 or settings.processes == 1:
        return ONE_GPU
    return GpuLayout(NAIVE if settings.naive_pipeline else DATAPARALLEL, seen)


def _name_layout(layout: GpuLayout) -> str:
    if layout.parallel == NAIVE:
        return f"{NAIVE} of {layout.count}"
    return f"nn.DataParallel x {layout.count}" if layout.parallel == DATAPARALLEL else str(layout)


def _share_memory(layout: GpuLayout, step: _Step, settings: ScriptSettings, request: PlanRequest) -> list[int]:
    """Of each GPU, the first one first."""
    memory, model = step.memory, step.model
    extra_bytes = memory.total_bytes - memory.allocated_bytes
    if layout.parallel == DATAPARALLEL:
        copies = 2 if settings.accumulation == 1 else 3
        reduced = model.weight_bytes + memory.parts.get(STATE, 0) + copies * model.gradient_bytes
        # The sum comes after the backward, in memory that its activations have left: its fragments don't add to it.
        summed = reduced + 2 * request.target.rules.workspace_bytes + request.target.context_bytes
        first = max(memory.total_bytes, summed)
        return [first, *[_peak_of_replica(step.tape) + extra_bytes] * (layout.count - 1)]
    if layout.parallel == NAIVE:
        inside = sum(block.bytes for block in step.tape.live_at_peak() if block.layer is not None)
        outside = memory.allocated_bytes - inside
        return [
            outside + inside // layout.count + extra_bytes,
            *[inside // layout.count + extra_bytes] * (layout.count - 1),
        ]
    if layout == ONE_GPU:
        return [memory.total_bytes]
    shape, single = model.largest(step.steps)
    alone = sum(model.parts(shape, single=single).values())
    held = sum(find_peak(model.curves(shape, single=single), layout, len(step.steps[0])).values())
    return [memory.total_bytes - alone + held + NCCL_BYTES] * layout.count


def _peak_of_replica(tape: Tape) -> int:
    """Of forward and backward of one micro-batch, without what only the first GPU keeps."""
    end = tape.parts[1] if len(tape.parts) > 1 else tape.update_from
    sizes = np.array([0 if block.category == STATE else block.bytes for block in tape.blocks], dtype=np.int64)
    events = np.array(tape.events[:end], dtype=np.int64)
    return int(np.cumsum(np.where(events >= 0, sizes[events], -sizes[~events])).max(initial=0))


def _share_time(layout: GpuLayout, step: _Step, request: PlanRequest, settings: ScriptSettings) -> float:
    """Each GPU has the step's micro-batches; what it waits for comes on top, in nn.DataParallel for each of them."""
    rates = request.target.rates(settings.precision)
    seconds = float(step.model.step_seconds(step.steps, rates).mean())
    if request.target.card is None or layout.parallel not in ("ddp", DATAPARALLEL):
        return seconds
    work = step.model.rank_work(step.steps, seconds, rates)
    total, waiting = work.predict_step(layout, build_card_link(request.target.card, layout.count))
    return total + (work.micro_batches - 1) * waiting if layout.parallel == DATAPARALLEL else total


def _count_steps(recipe: Recipe, request: PlanRequest, examples: int) -> int:
    if recipe.train.steps is not None:
        return recipe.train.steps
    planned = np.mean([len(rows) for rows in request.workload.steps])
    return max(1, math.ceil(request.workload.total_steps * float(planned) / examples))


def _describe(settings: ScriptSettings, strategy: Strategy, step: _Step, request: PlanRequest) -> Iterator[str]:
    """How the script computes, in short."""
    longest = step.model.largest(step.steps)[0]
    lengths = f"{max(longest.sources):,}"
    lengths += "" if longest.targets is None else f" + {max(longest.targets):,}"
    yield HALF_WEIGHTS.get(_weights_type(settings, request), settings.precision)
    yield f"{strategy.attention} attention"
    whole = strategy.batching == "max_length"
    yield f"padded to {'' if whole else 'the longest of a batch, up to '}{lengths} tokens"
    yield f"{settings.per_device_examples} x {settings.accumulation} examples per GPU"
    yield name_optimizer(settings)
    if settings.checkpointing:
        yield "gradient checkpointing"
    if settings.quantized_bits is not None:
        yield f"weights in {settings.quantized_bits} bits"


def _list_assumptions(
    settings: ScriptSettings, strategy: Strategy, layout: GpuLayout, request: PlanRequest
) -> Iterator[str]:
    if settings.before_5:
        why = f"transformers 4, because 5 has no {settings.before_5}"
        is_eager = not settings.attention and strategy.attention == "eager"
        yield why + (", in which this type of model has eager attention" if is_eager else "")
    if layout.parallel == DATAPARALLEL:
        yield "one process that sees all GPUs, since nothing starts more; torchrun would make it ddp"
    if settings.precision == "bf16" and not request.target.has_bf16:
        yield f"bf16 is emulated on {request.target.name}, as fast as fp32 at best"
    if settings.sharding:
        yield f"without {settings.sharding}, whose sharding is not predicted"
    if name_optimizer(settings) not in _KNOWN_OPTIMIZERS:
        yield f"{name_optimizer(settings)} is predicted as AdamW"
    if settings.quantized_bits is not None:
        yield "quantized weights by their bits, without what unpacking them takes"
    if settings.padding == "max_length" and settings.max_source_tokens is None:
        yield "max_length padding without a length that could be read: padded to the longest"


_KNOWN_OPTIMIZERS = {
    *("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adafactor", "adamw_anyprecision"),
    *("adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "adamw_torch_xla"),
}


def _name_cause(settings: ScriptSettings, step: _Step, request: PlanRequest) -> tuple[str, str, int]:
    """The setting, what it makes large, and how many bytes that has at the peak."""
    shape = step.model.largest(step.steps)[0]
    count = step.model.gradient_bytes // (2 if _weights_type(settings, request) in HALF_WEIGHTS else 4)
    vocabulary = getattr(request.model_config.config, "vocab_size", 0)
    batch = f"per_device_train_batch_size={settings.per_device_examples}"
    targets = f"{max(shape.targets or (0,)):,} target tokens"
    weights = f"{format_count(count)} trained weights with {name_optimizer(settings)}"
    texts = {
        "encoder": (_name_length(settings, shape, "source"), "the encoder's attention scores take"),
        "decoder": (_name_length(settings, shape, "target"), "the decoder's attention scores take"),
        "logits": (f"{batch}, {targets}", f"logits over {vocabulary:,} tokens and their loss take"),
        "weights": (weights, "weights, gradients and optimizer state take"),
        "others": (batch, "activations of linear layers, norms and dropout take"),
    }
    sizes = dict.fromkeys(texts, 0)
    for block in step.tape.live_at_peak():
        sizes[_find_part(block, shape, vocabulary)] += block.bytes
    largest = max(sizes, key=lambda part: sizes[part])
    return *texts[largest], sizes[largest]


def _find_part(block: MemoryBlock, shape: Shape, vocabulary: int) -> str:
    if block.category in (WEIGHTS, GRADIENTS, STATE):
        return "weights"
    is_length = vocabulary in (max(shape.sources), max(shape.targets or (0,)))  # then its scores are as wide
    if block.category == LOSS or (block.shape[-1:] == (vocabulary,) and not is_length):
        return "logits"
    if not is_scores(block):
        return "others"
    side, _ = find_place(block.place)
    if side is not None and side in ("encoder", "decoder"):
        return side
    # In the backward, and where a model has one stack.
    return "encoder" if block.shape[-2] == max(shape.sources) else "decoder"


def _name_length(settings: ScriptSettings, shape: Shape, side: str) -> str:
    tokens = max(shape.sources if side == "source" else shape.targets or (0,))
    padding = settings.padding if side == "source" else settings.target_padding
    limit = settings.max_source_tokens if side == "source" else settings.max_target_tokens
    if padding == "max_length" and limit is not None:
        return f"max_length={limit}"
    return f"{side}s of up to {tokens:,} tokens"
