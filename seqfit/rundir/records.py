"""The records of a run: what is measured at a step, at an evaluation, and what happened in between.

Each is one line of JSON. Quantities end in their unit. A value that could not be had is None, never 0. A number that
is not finite (a gradient's norm of inf) is written as null, for JSON has no NaN, and an event says what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step, averaged over the steps since the record before it where that is said."""

    step: int
    epoch: float
    loss: float  # mean over the target tokens (classifier: examples) of the steps since the last record
    learning_rate: float | None  # None where the optimizer sets its own, relative to each weight
    gradient_norm: float | None  # of this step, before clipping; None where it was not computed
    examples: int  # of this step
    source_tokens: int  # real ones, of this step
    target_tokens: int
    padded_tokens: int  # what padding added to both, in this step
    micro_batches: int
    step_seconds: float  # mean since the last record
    tokens_per_second: float  # real source and target tokens, since the last record
    memory_bytes: int  # peak of the device's allocations, or the process's resident memory on a CPU
    time: float  # Unix time


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One evaluation during or after training. Step 0 is the model before fine-tuning."""

    step: int
    split: str
    loss: float | None
    scores: dict[str, float]
    rows: int
    seconds: float
    time: float


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A fallback, a retry, a skipped row, a new best: whatever a reader of the run should know."""

    time: float
    kind: str
    message: str
    data: dict[str, Any] = field(default_factory=dict)
