"""A step as transformers' Trainer runs it: a script's settings in the words of a strategy, and its micro-batches.

    Trainer                                              here
    padding="longest" or "max_length", a batch a GPU     batching padded or max_length, so many examples per micro-batch
    attention that transformers chooses                  sdpa where the model has it, else eager
    labels=..., so all logits, the loss in fp32          loss full
    adamw_torch, adamw_torch_fused, adamw_hf             optimizer_kernel foreach, fused, loop
    fp16=True, bf16=True                                 autocast; seqfit's fp16 keeps some layers in fp32, so both are
                                                         traced as bf16, whose sizes are the same

The step on fake tensors is then the planner's own: padding, attention, loss and update are what differs, and all of
them are choices that a strategy has. One thing is not: of weights in half precision, some models compute the loss in
half precision as well, and it is predicted in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedConfig

from seqfit.conversion import ScriptSettings
from seqfit.model import ModelConfig, family_of
from seqfit.parallel import build_rule
from seqfit.planning.shape import Shape, Workload
from seqfit.planning.tape import WEIGHTS, MemoryBlock, Tape
from seqfit.planning.template import Template
from seqfit.strategy import Batching, Strategy

HALF_WEIGHTS = {"bfloat16": "bf16 weights", "float16": "fp16 weights"}
_UNLIMITED = 10**9  # tokens: examples alone limit a micro-batch
_KERNELS = {"adamw_torch": "foreach", "adamw_hf": "loop", "adamw_anyprecision": "foreach", "adamw_torch_xla": "foreach"}
_FIRST_STEPS = 48  # that count; of the others, as many
_MEGABATCHES = 50  # of transformers' LengthGroupedSampler: so many batches are sorted at a time


def build_trainer_strategy(**fields: Any) -> Strategy:
    """Padded rows and all logits at once; `fields` are what else differs from a default strategy."""
    plain = {"batching": "padded", "loss": "full", "attention": "sdpa", "micro_batch_tokens": _UNLIMITED}
    return Strategy.model_validate({**plain, **fields})


def build_script_strategy(settings: ScriptSettings, config: PreTrainedConfig, *, has_sdpa: bool = True) -> Strategy:
    """The script's own."""
    is_whole = "max_length" in (settings.padding, settings.target_padding)
    return build_trainer_strategy(
        batching="max_length" if is_whole else "padded",
        micro_batch_examples=settings.per_device_examples,
        pad_multiple=settings.pad_multiple,
        attention=choose_attention(settings, config, has_sdpa=has_sdpa),
        recompute="blocks" if settings.checkpointing else "none",
        optimizer_kernel=_KERNELS.get(name_optimizer(settings), "fused"),
    )


def has_sdpa(model_config: ModelConfig) -> bool:
    """Whether transformers has it for this type of model."""
    try:
        return bool(model_config.auto._model_mapping[type(model_config.config)]._supports_sdpa)
    except (AttributeError, KeyError):  # a class of the model's own folder
        return False


def choose_attention(settings: ScriptSettings, config: PreTrainedConfig, *, has_sdpa: bool = True) -> str:
    """sdpa where the model has it, and had it in the script's version of transformers."""
    if not has_sdpa:
        return "eager"
    if settings.attention:
        return "eager" if settings.attention == "eager" else "sdpa"
    return "eager" if settings.before_5 and family_of(config).was_eager_before_5 else "sdpa"


def find_weights_type(settings: ScriptSettings, stored: Mapping[str, Any]) -> str:
    """`stored`: the model's config as published. transformers 5 loads weights in the type that they were saved in."""
    if settings.weights not in ("", "auto"):
        return settings.weights
    saved = str(stored.get("dtype", stored.get("torch_dtype")))
    is_taken = settings.weights == "auto" or not settings.before_5
    return saved if is_taken and saved in HALF_WEIGHTS else "float32"


def name_optimizer(settings: ScriptSettings) -> str:
    """With transformers' default, which 5 has changed."""
    return settings.optimizer or ("adamw_torch" if settings.before_5 else "adamw_torch_fused")


def split_rows(
    settings: ScriptSettings,
    strategy: Strategy,
    workload: Workload,
    limits: tuple[int | None, int | None],
    *,
    is_assumed: bool,
) -> list[list[Shape]]:
    """Steps of one GPU: micro-batches of the script's size. `is_assumed`: there are as many rows as a step needs."""
    batch, step = settings.per_device_examples, settings.per_device_examples * settings.accumulation
    rows = np.concatenate([*workload.sample()])
    if is_assumed:
        rows = np.resize(rows, max(len(rows), step))
    if settings.sorts_by_length:
        rows = _sort_megabatches(np.arange(len(workload.source_lengths)), workload.source_lengths, batch)
    steps = [rows[start : start + step] for start in range(0, len(rows), step)]
    steps = [*steps[:_FIRST_STEPS], *steps[_FIRST_STEPS :: max(1, len(steps) // _FIRST_STEPS)]]
    batching: Batching = strategy.batching
    return workload.split(build_rule(strategy, batching, limits), steps)


def split_all_rows(
    settings: ScriptSettings, strategy: Strategy, workload: Workload, limits: tuple[int | None, int | None]
) -> list[list[Shape]]:
    """Every step of one GPU, in the order of the workload."""
    step = settings.per_device_examples * settings.accumulation
    rows = np.concatenate(workload.steps)
    batching: Batching = strategy.batching
    steps = [rows[start : start + step] for start in range(0, len(rows), step)]
    return workload.split(build_rule(strategy, batching, limits), steps)


def find_limits(settings: ScriptSettings) -> tuple[int | None, int | None]:
    """What max_length pads sources and targets to."""
    source = settings.max_source_tokens if settings.padding == "max_length" else None
    target = settings.max_target_tokens if settings.target_padding == "max_length" else None
    return source, target


def _sort_megabatches(rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32], batch: int) -> npt.NDArray[np.int64]:
    """group_by_length: random pieces, each sorted from long to short, the longest text first of all."""
    shuffled = np.random.default_rng(0).permutation(rows)
    size = _MEGABATCHES * batch
    pieces = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
    pieces.sort(key=lambda piece: -int(lengths[piece].max()))
    return np.concatenate([piece[np.argsort(-lengths[piece], kind="stable")] for piece in pieces])


def has_small_state(settings: ScriptSettings) -> bool:
    """An optimizer with 8-bit state, which is a rule on top of AdamW's trace."""
    return "8bit" in settings.optimizer


def quantize_template(template: Template, bits: int) -> Template:
    """Weights of the blocks' matrices in so many bits, as bitsandbytes stores them; a rule, which was not measured."""
    shares = np.array([_quantized_share(block, bits) for block in template.tape.blocks])
    return replace(
        template, tape=quantize_tape(template.tape, bits), block_bytes=template.block_bytes * shares[:, None]
    )


def quantize_tape(tape: Tape, bits: int) -> Tape:
    return replace(
        tape, blocks=[replace(block, bytes=round(block.bytes * _quantized_share(block, bits))) for block in tape.blocks]
    )


def _quantized_share(block: MemoryBlock, bits: int) -> float:
    if block.category != WEIGHTS or block.layer is None or len(block.shape) != 2 or not block.bytes:
        return 1.0
    return bits / 8 / (block.bytes / math.prod(block.shape))


def count_examples(settings: ScriptSettings, gpus: int) -> int:
    """Of a step, on all GPUs."""
    return settings.per_device_examples * settings.accumulation * gpus
