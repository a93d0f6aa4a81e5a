"""Events that programs read: their fields, and the one place that makes a sentence of them.

An event is what a reader of a run should know besides steps and evaluations. Its class has the kind and the fields;
`message` is for people, and no program reads it.

    writer.event(FallbackEvent("batching", "padded batches, grouped by length", "Marian has separate embeddings"))
    ->  {"time": ..., "kind": "fallback", "message": "padded batches, grouped by length: Marian has ...",
         "data": {"feature": "batching", "used": "padded batches, grouped by length", "reason": "Marian has ..."}}

A kind without data is a sentence: writer.event(EventKind.PLAN, "...").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from seqfit.rundir.records import EventKind
from seqfit.units import format_bytes, format_seconds


class Event(Protocol):
    """A kind, fields (those of a dataclass), and a message that is made from them."""

    kind: ClassVar[EventKind]

    @property
    def message(self) -> str:
        """For people."""
        ...


PlainEvent = tuple[EventKind, str]  # a kind without data, and its message
Events = list[Event | PlainEvent]


@dataclass(frozen=True)
class OutOfMemoryEvent:
    kind: ClassVar[EventKind] = EventKind.OUT_OF_MEMORY

    step: int  # that is repeated; from this step on the limit holds
    phase: str  # forward, backward, optimizer or evaluation
    action: Literal["retry", "restart", "restore"]  # repeat it; restart all processes; return to the last snapshot
    micro_batch_tokens: int | None = None  # limit of a micro-batch from this step on; None: unchanged
    rank: int | None = None  # of the process that ran out of memory; None: the only one
    examples: int | None = None  # in the micro-batch that did not fit
    tokens: int | None = None  # in the micro-batch that did not fit
    failed_step: int | None = None  # restore: the step whose update was interrupted
    evaluation_tokens: int | None = None  # evaluation: limit of a batch from now on
    evaluation_rows: int | None = None  # evaluation: rows decoded at once from now on

    @property
    def message(self) -> str:
        if self.phase == "evaluation":
            return (
                f"OOM in the evaluation of step {self.step}; retrying with batches of at most "
                f"{self.evaluation_tokens:,} tokens, and {self.evaluation_rows:,} rows decoded at once"
            )
        if self.action == "restore":
            return (
                f"OOM in the update of step {self.failed_step}, which left weights half updated; back to the snapshot "
                f"of step {self.step - 1}, with micro-batches of at most {self.micro_batch_tokens:,} tokens"
            )
        if self.action == "restart":
            return f"{self.where}, during a collective; all processes have to restart from the last snapshot"
        limit = f"micro-batches of at most {self.micro_batch_tokens:,} tokens"
        return f"{self.where}; retrying the same global batch with {limit}"

    @property
    def where(self) -> str:
        """'OOM on rank 1 in the backward pass of step 12 (micro-batch of 8 examples, 4,096 tokens)'."""
        rank = "" if self.rank is None else f" on rank {self.rank}"
        phase = f"{self.phase} pass" if self.phase in ("forward", "backward") else self.phase
        examples = "1 example" if self.examples == 1 else f"{self.examples:,} examples"
        return f"OOM{rank} in the {phase} of step {self.step} (micro-batch of {examples}, {self.tokens:,} tokens)"


def find_smaller_micro_batches(events: Iterable[Mapping[str, Any]], after: int) -> dict[int, int]:
    """Step -> tokens per micro-batch from that step on, for every OOM after a snapshot.

    A process that is killed after such a step has left no snapshot of it, only the event; a resume splits the steps
    before it as they were, and those after it as the event says.
    """
    limits: dict[int, int] = {}
    for event in events:
        data = event.get("data") or {}
        step, tokens = data.get("step"), data.get("micro_batch_tokens")
        if event.get("kind") == EventKind.OUT_OF_MEMORY and tokens is not None and step is not None and step > after:
            limits[step] = min(tokens, limits.get(step, tokens))
    return limits


@dataclass(frozen=True)
class NonFiniteEvent:
    kind: ClassVar[EventKind] = EventKind.NON_FINITE

    step: int
    action: Literal["recorded", "retried", "skipped"]  # written as null; step repeated in fp32; update skipped
    values: dict[str, str] = field(default_factory=dict)  # what is not finite, such as {"loss": "nan"}
    rows: list[int] = field(default_factory=list)  # of the training split, in the global batch of the step
    precision: str | None = None  # retried: in which the step was not finite
    file: str | None = None  # recorded: the record file

    @property
    def message(self) -> str:
        listed = ", ".join(f"{name} is {value}" for name, value in self.values.items())
        if self.action == "retried":
            return f"non-finite values in {self.precision} at step {self.step}; retrying the step in fp32"
        if self.action == "skipped":
            return f"{listed} at step {self.step}; the update is skipped"
        return f"step {self.step}, {self.file}: {listed}, written as null"


@dataclass(frozen=True)
class LossSpikeEvent:
    kind: ClassVar[EventKind] = EventKind.LOSS_SPIKE

    step: int
    loss: float
    usual_loss: float  # median of the recent steps
    rows: list[int] = field(default_factory=list)  # of the training split, in the global batch of the step

    @property
    def message(self) -> str:
        return f"loss spike at step {self.step}: {self.loss:.4g}, after a median of {self.usual_loss:.4g}"


@dataclass(frozen=True)
class SnapshotEvent:
    kind: ClassVar[EventKind] = EventKind.SNAPSHOT

    step: int
    began: float  # Unix time at which training stopped for it
    ended: float  # Unix time at which it had its final name on the disk
    waited_seconds: float  # training continued after these; the rest was written in the background

    @property
    def message(self) -> str:
        return f"snapshot of step {self.step}, on the disk after {format_seconds(self.ended - self.began)}"


@dataclass(frozen=True)
class ResumeEvent:
    kind: ClassVar[EventKind] = EventKind.RESUME

    step: int  # of the snapshot; 0: from the start, because there is none

    @property
    def message(self) -> str:
        return f"resumed from step {self.step}" if self.step else "resumed from the start: there is no snapshot yet"


@dataclass(frozen=True)
class RecordsDroppedEvent:
    kind: ClassVar[EventKind] = EventKind.RECORDS_DROPPED

    step: int  # of the snapshot
    steps: int  # records of steps
    evaluations: int  # records of evaluations

    @property
    def message(self) -> str:
        return (
            f"{self.steps} step records and {self.evaluations} evaluation records after step {self.step} are dropped: "
            "these steps are repeated"
        )


@dataclass(frozen=True)
class FallbackEvent:
    kind: ClassVar[EventKind] = EventKind.FALLBACK

    feature: Literal["batching", "generation", "trimming", "best-metric"]  # what it replaces
    used: str  # instead
    reason: str

    @property
    def message(self) -> str:
        return f"{self.used}: {self.reason}"


@dataclass(frozen=True)
class PredictionEvent:
    kind: ClassVar[EventKind] = EventKind.PREDICTION

    predicted_peak_bytes: int | None
    measured_peak_bytes: int | None
    measured_peak_is: str  # which peak was measured, or why none was
    predicted_step_seconds: float | None
    measured_step_seconds: float | None

    @property
    def message(self) -> str:
        predicted = "not predicted" if self.predicted_peak_bytes is None else format_bytes(self.predicted_peak_bytes)
        measured = "" if self.measured_peak_bytes is None else f"{format_bytes(self.measured_peak_bytes)} "
        return (
            f"peak memory {predicted} predicted, {measured}{self.measured_peak_is}; time per step "
            f"{_seconds(self.predicted_step_seconds)} predicted, {_seconds(self.measured_step_seconds)} measured"
        )


def _seconds(value: float | None) -> str:
    return "not" if value is None else format_seconds(value)


@dataclass(frozen=True)
class ParallelEvent:
    kind: ClassVar[EventKind] = EventKind.PARALLEL

    strategy: str  # ddp, fsdp, pipeline, ...
    processes: int

    @property
    def message(self) -> str:
        return f"{self.strategy} over {self.processes} processes"


@dataclass(frozen=True)
class EarlyStoppingEvent:
    kind: ClassVar[EventKind] = EventKind.EARLY_STOPPING

    step: int
    evaluations: int  # in a row without improvement

    @property
    def message(self) -> str:
        return f"stopped at step {self.step}: no improvement in the last {self.evaluations} evaluations"


@dataclass(frozen=True)
class PlateauEvent:
    kind: ClassVar[EventKind] = EventKind.PLATEAU

    step: int
    metric: str  # that did not improve

    @property
    def message(self) -> str:
        return f"{self.metric} did not improve: the learning rate is lowered at step {self.step}"


@dataclass(frozen=True)
class InterruptedEvent:
    kind: ClassVar[EventKind] = EventKind.INTERRUPTED

    signal: str  # its name, SIGINT for Ctrl-C
    checkpoint: Literal["best", "last"]  # of the best evaluation so far, or of the last step where there was none

    @property
    def message(self) -> str:
        by = "Ctrl-C" if self.signal == "SIGINT" else self.signal
        best, last = "the best evaluation so far", "the last step, because there was no evaluation yet"
        return f"stopped by {by}; the checkpoint is that of {best if self.checkpoint == 'best' else last}"


@dataclass(frozen=True)
class EvaluationInterruptedEvent:
    kind: ClassVar[EventKind] = EventKind.EVALUATION_INTERRUPTED

    step: int

    @property
    def message(self) -> str:
        return f"the evaluation of step {self.step} was interrupted; the resume repeats it"


@dataclass(frozen=True)
class ThresholdEvent:
    kind: ClassVar[EventKind] = EventKind.THRESHOLD

    step: int
    threshold: float
    micro_f1: float  # with this threshold, 0 to 100
    micro_f1_at_half: float  # with a threshold of 0.5

    @property
    def message(self) -> str:
        return (
            f"step {self.step}, validation: labels are assigned from a probability of {self.threshold:.3f} on, which "
            f"gives the best micro-F1, {self.micro_f1:.2f} ({self.micro_f1_at_half:.2f} with 0.5)"
        )


@dataclass(frozen=True)
class DataEvent:
    kind: ClassVar[EventKind] = EventKind.DATA

    note: str  # one sentence; an evaluation does not repeat one that the run has

    @property
    def message(self) -> str:
        return self.note


EVENTS: tuple[type[Event], ...] = (
    *(OutOfMemoryEvent, NonFiniteEvent, LossSpikeEvent, SnapshotEvent, ResumeEvent, RecordsDroppedEvent),
    *(FallbackEvent, PredictionEvent, ParallelEvent, EarlyStoppingEvent, PlateauEvent, InterruptedEvent),
    *(EvaluationInterruptedEvent, ThresholdEvent, DataEvent),
)
