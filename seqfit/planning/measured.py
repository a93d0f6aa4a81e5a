"""The real step: what a plan predicts from fake tensors, measured on this machine's CPU.

In: a `StepSpec` and the micro-batches of a step, as a `FakeStep` takes them. Out: the peak of allocated bytes of a real
step, from torch's own record of what its CPU allocator allocates and frees:

    live before the step     +8 (an activation)   +4   -8   +6
    100                      108                  112  104  110          peak 112

Tokens are random, and padded batches have real padding, because masks of ones take another path through transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from seqfit.data import GlobalBatch, MicroBatch, Padding
from seqfit.model import choose_weights
from seqfit.parallel import BuiltStep, build_step
from seqfit.planning.fake_step import StepSpec
from seqfit.planning.shape import Shape, join_micro_batches
from seqfit.step import Precision, TrainStep, measure_peak
from seqfit.tasks import Label

_FIRST_TOKEN, _LAST_TOKEN = 3, 99  # ids that every vocabulary has, after padding and end
_PADDING = Padding(pad_id=0, decoder_start_id=0)


def build_real_step(spec: StepSpec, device: torch.device = torch.device("cpu")) -> BuiltStep:  # noqa: B008, a value
    """With random weights."""
    model_config = replace(spec.model_config, config=copy.deepcopy(spec.model_config.config))  # building writes to it
    model = model_config.build(spec.model.model_copy(update={"weights": "random"}))
    choose_weights(model, spec.model, spec.strategy)
    precision = Precision(spec.precision, device, "as planned")
    return build_step(model.to(device).train(), spec.train, spec.strategy, precision)


def draw_batch(shapes: Sequence[Shape], label: Label = 0) -> GlobalBatch:
    """Random tokens of these lengths, packed or padded by the code that training uses; `label` is a classifier's."""
    return join_micro_batches([_draw_micro_batch(shape, label) for shape in shapes])


def measure_peak_bytes(step: TrainStep, batch: GlobalBatch) -> int:
    """Allocated bytes at the peak of one step, after an earlier one, which makes the optimizer's state."""
    with measure_peak(step, batch) as peak:
        step.run(batch)
    return peak.bytes


def _draw_micro_batch(shape: Shape, label: Label) -> MicroBatch:
    longest = max(shape.sources), max(shape.targets or (0,))
    return MicroBatch.collate(
        _draw(shape.sources),
        _draw(shape.targets or ()),
        _PADDING,
        labels=[label] * shape.examples if shape.targets is None else None,
        shape=None if shape.packed else longest,
    )


def _draw(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    random = np.random.default_rng(0)
    return [random.integers(_FIRST_TOKEN, _LAST_TOKEN, length) for length in lengths]
