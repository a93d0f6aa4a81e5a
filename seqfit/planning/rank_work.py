"""What one card does in a step, read from the step's trace: the seconds that can be shared, and the bytes to send.

In: a `StepModel`, the micro-batches of some steps, the card's rates. Out: a `Work`, which `scaling` turns into the step
of many cards. The plan of a few cards and the scaling report of hundreds both begin here.

    step of 80 ms in 2 micro-batches, AdamW on 60M weights 6 ms   ->   Work(74 ms, 6 ms, 2, 240 MB, 240 MB, 13 blocks)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedConfig

from seqfit.model.families import find_family
from seqfit.planning.cluster import RankWork
from seqfit.planning.shape import Shape
from seqfit.planning.step_model import StepModel
from seqfit.planning.tape import KINDS, WEIGHTS
from seqfit.planning.timing import Rates, kinds_of


def build_work(
    model: StepModel,
    steps: Sequence[Sequence[Shape]],
    step_seconds: float,
    rates: Rates,
    *,
    precision: str,
    layers: int,
) -> RankWork:
    """Of steps of these micro-batches, which take so long on average."""
    update_seconds = _estimate_update_seconds(model, steps[0][0], rates)
    weight_bytes = sum_weight_bytes(model)
    return RankWork(
        batch_seconds=step_seconds - update_seconds,
        update_seconds=update_seconds,
        micro_batches=sum(map(len, steps)) / len(steps),
        # Blocks are sent as they are used; embeddings and heads in fp32, as one process looks up and sums in it.
        weight_bytes=weight_bytes - (model.in_blocks_bytes // 2 if precision == "bf16" else 0),
        gradient_bytes=model.gradient_bytes,
        blocks=layers + 1,
    )


def sum_weight_bytes(model: StepModel) -> int:
    """As the card keeps them."""
    return sum(block.bytes for block in model.template.tape.blocks if block.category == WEIGHTS)


def count_layers(config: PreTrainedConfig) -> int:
    """Of encoder and decoder together."""
    return find_family(config.model_type).count_layers(config)


def _estimate_update_seconds(model: StepModel, shape: Shape, rates: Rates) -> float:
    """Of the optimizer's kernels, which stream through all weights whatever the micro-batch."""
    template = model.template
    is_update = kinds_of(template.tape) == KINDS.index("update")
    at = template.values(shape)
    moved_bytes = float(np.maximum(template.kernel_bytes[is_update] @ at, 0).sum())
    calls = float(np.maximum(template.kernel_calls[is_update] @ at, 0).sum())
    return moved_bytes / rates.update_bytes_per_second + calls * rates.call_seconds
