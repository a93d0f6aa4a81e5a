"""How much of the model's mathematics a run does in a second, and how much its device could do.

In: a job. Out: operations of a global batch, counted on its real tokens (see
seqfit.model.flops), and the device's peak rate. Either may be unknown; the reason then goes into the manifest.

    a step of 2.0e12 operations in 0.5 s   ->   4.0e12 a second; on a card that makes 71e12 at most, a share of 5.6%
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from seqfit.data.loader import GlobalBatch, Loader
from seqfit.hardware.card import match_card
from seqfit.model.flops import ModelShape, count_training_flops, read_model_shape
from seqfit.step.precision import Precision
from seqfit.train.job import Job


@dataclass(frozen=True)
class Work:
    """What a step has to compute, and the most that its device can."""

    loader: Loader | None = None
    shape: ModelShape | None = None
    peak_flops_per_second: float | None = None
    absent: dict[str, str] = field(default_factory=dict)  # field of a step's record -> why it has no value

    def count(self, batch: GlobalBatch) -> int | None:
        """Operations of a global batch, or None where they are not known."""
        if self.shape is None or self.loader is None:
            return None
        return count_training_flops(self.shape, *self.loader.lengths(batch))


def describe_work(job: Job) -> Work:
    """Of a job's steps; what is absent says why."""
    shape, reason = read_model_shape(job.answerer.model.config.to_dict())
    if not all(parameter.requires_grad for parameter in job.step.model.parameters()):
        shape, reason = None, "the backward of adapters and frozen parts is not twice the forward"
    peak, unknown = find_peak_rate(job.step.precision)
    absent = {"model_flops_per_second": reason} if shape is None else {}
    absent |= {"model_flops_share": unknown} if peak is None else {}
    processes = job.step.way.world.size
    return Work(job.loader, shape, None if peak is None else peak * processes, absent)


def find_peak_rate(precision: Precision) -> tuple[float | None, str]:
    """Operations a second that the device makes at most in this precision, or None and the reason."""
    if precision.device.type != "cuda":
        return None, "no peak rate is known of a CPU"
    properties = torch.cuda.get_device_properties(precision.device)
    card = match_card(properties.name, properties.total_memory)
    if card is None:
        return None, f"{properties.name} is not in the table of cards"
    uses_tf32 = precision.name == "fp32" and torch.get_float32_matmul_precision() != "highest"
    units = "tf32" if uses_tf32 and card.has_tf32 else precision.name
    rate = {str(name): rate for name, rate in card.flops_per_second.items()}.get(units)
    return rate, "" if rate is not None else f"the table of cards has no {units} rate of {card.name}"
