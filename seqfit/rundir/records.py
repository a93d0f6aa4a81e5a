"""The records of a run: one JSON object per line, for steps, evaluations, telemetry samples and events; typed events.

Quantities end in their unit. A value that is not known is None, never 0. Non-finite numbers (a gradient norm of inf)
are written as null, because JSON has no NaN, and an event keeps the value.

All records carry Unix time of one machine, so a telemetry sample belongs to the steps between two step records:

    steps.jsonl      time 100.0 step 10                       time 103.0 step 20
    telemetry.jsonl          time 100.4  time 100.9  ...  time 102.9                  -> samples of steps 11 to 20

An event is what a reader of a run should know besides steps and evaluations. Its class has the kind and the fields;
`message` is for people, made from the fields in this one place, and no program reads it.

    writer.event(FallbackEvent("batching", "padded batches, grouped by length", "Marian has separate embeddings"))
    ->  {"time": ..., "kind": "fallback", "message": "padded batches, grouped by length: Marian has ...",
         "data": {"feature": "batching", "used": "padded batches, grouped by length", "reason": "Marian has ..."}}

A kind without data is a sentence: writer.event(EventKind.PLAN, "...").

`python -m seqfit.rundir.records_page` prints docs/records.md, which is made from the comments below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol, get_args

from seqfit.units import format_bytes, format_seconds

Phase = Literal[
    "data_wait",  # waiting for the next batch
    "host_to_device",
    "forward",
    "backward",
    "optimizer",
    "communication",  # with other ranks, where it does not overlap with computation
    "evaluation",
    "checkpoint",  # saving the best model
    "snapshot",  # saving all that an exact resume needs
]
PHASES: tuple[Phase, ...] = get_args(Phase)
BETWEEN_STEPS: frozenset[Phase] = frozenset({"evaluation", "checkpoint", "snapshot"})  # not part of step_seconds


class EventKind(StrEnum):
    """What an event is about. A kind with data has a class below; the others have a message only."""

    COMPILE = "compile"  # blocks that torch.compile compiles
    DATA = "data"  # what preparing the data decided
    DEVICE = "device"  # a GPU that is not used, and why
    EARLY_STOPPING = "early-stopping"  # no improvement for eval.early_stopping.patience evaluations
    EVALUATION_INTERRUPTED = "evaluation-interrupted"  # a signal ended an evaluation; the resume repeats it
    FAILED = "failed"  # the error that ended the run
    FALLBACK = "fallback"  # something slower or simpler was used than the strategy states
    FREEZE = "freeze"  # frozen parts of the model
    GUESSED = "guessed"  # what was guessed about data without a recipe
    INEXACT_RESUME = "inexact-resume"  # what differs from the snapshot's process, so that losses may differ
    INTERRUPTED = "interrupted"  # Ctrl-C or a signal stopped the run
    LENGTHS = "lengths"  # long rows: slow or too large steps, and the limit that helps
    LORA = "lora"  # adapters that were added
    LOSS_SPIKE = "loss-spike"  # a loss far above the recent ones
    MEMORY = "memory"  # how freed memory is handled, or a peak that could not be measured
    MEMORY_LIMIT = "memory-limit"  # what the process may allocate
    NON_FINITE = "non-finite"  # NaN or Inf in a loss, a gradient or a record
    OFFLINE = "offline"  # the Hub does not answer; cached files are used
    OPTIMIZER = "optimizer"  # which implementation runs, and why
    OUT_OF_MEMORY = "out-of-memory"  # OOM, and how the run recovered
    PARALLEL = "parallel"  # several processes train together
    PLAN = "plan"  # the strategy, with predicted memory and time
    PLATEAU = "plateau"  # the learning rate was lowered because the metric did not improve
    PRECISION = "precision"  # precision of weights and computation, and why
    PREDICTION = "prediction"  # predicted and measured memory and time, at the end of the run
    PREDICTION_FAILED = "prediction-failed"  # why nothing was predicted, stored or compared
    RECIPE = "recipe"  # notes on the recipe, such as renamed fields
    RECOMPUTE = "recompute"  # gradient checkpointing (activation recomputation)
    RECORDS_DROPPED = "records-dropped"  # records after the snapshot that a resume continues from
    REGRESSION_HEAD = "regression-head"  # how a regression head was initialised
    REPORT = "report"  # the page could not be written at the end of training
    RESUME = "resume"  # the run continues from a snapshot, or from the start
    SCHEDULE = "schedule"  # a warning about the learning-rate schedule
    SNAPSHOT = "snapshot"  # all that an exact resume needs is on the disk
    SNAPSHOT_SKIPPED = "snapshot-skipped"  # a corrupted snapshot; an older one is used
    TELEMETRY = "telemetry"  # what could not be sampled, and why
    THRESHOLD = "threshold"  # multilabel: the probability from which a label is assigned
    TRACKING = "tracking"  # what could not be sent to a tracker
    TRIM = "trim"  # the vocabulary was trimmed to the tokens of the data
    UNTESTED = "untested"  # a model type that no test compares with transformers


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step; where it says so, a mean or a sum over the steps since the previous record."""

    step: int  # counted from 1
    epoch: float  # passes over the training split so far
    loss: float  # mean per target token (classifier: per example) since the previous record
    learning_rate: float | None  # None where the optimizer sets its own, relative to each weight
    gradient_norm: float | None  # of this step, before clipping; None where it was not computed
    examples: int  # in the global batch of this step
    source_tokens: int  # real tokens of this step
    target_tokens: int  # real tokens of this step
    padded_tokens: int  # padding added to both, in this step
    micro_batches: int  # of this step, on the first process
    step_seconds: float  # mean since the previous record, without evaluations, checkpoints and snapshots
    tokens_per_second: float  # real source and target tokens, since the previous record
    memory_bytes: int  # peak of the device's allocations; on a CPU resident memory of the process
    time: float  # Unix time
    phase_seconds: dict[str, float] = field(default_factory=dict)  # seconds of each phase, summed since the last record
    padding_share: float | None = None  # padding / all tokens, since the previous record
    model_flops_per_second: float | None = None  # what the model's mathematics needs for real tokens
    mfu: float | None = None  # model FLOPs utilisation: share of the device's peak rate; None where that is not known
    queued_seconds: float | None = None  # part of step_seconds spent waiting for a CPU core; None if not measured
    calibration_seconds: float | None = None  # duration of the calibration workload after this step; comparisons only


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One evaluation during or after training. Step 0 is the model before fine-tuning."""

    step: int  # of the evaluated model
    split: str  # train, validation, test, or the name of other data
    loss: float | None  # mean per target token (classifier: per example); None where it was not computed
    scores: dict[str, float]  # by metric; most range from 0 to 100
    rows: int  # that were scored
    seconds: float  # that the evaluation took
    time: float  # Unix time at its end
    intervals: dict[str, list[float]] = field(default_factory=dict)  # 95% confidence interval of scores: [low, high]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A fallback, a retry, a skipped row: whatever a reader of the run should know."""

    time: float  # Unix time
    kind: EventKind  # one of the kinds below
    message: str  # for people, made from the data; programs read kind and data
    data: dict[str, Any] = field(default_factory=dict)  # the fields of the kind; {} for kinds without data


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. A value that the card or its driver does not report is None."""

    gpu: int  # index in sensors.json
    busy_share: float | None = None  # share of time in which at least one kernel ran
    memory_busy_share: float | None = None  # share of time in which its memory was read or written
    memory_bytes: int | None = None  # used by all processes, driver included
    temperature_celsius: float | None = None
    power_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded
    core_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    throttle_reasons: list[str] | None = None  # [] where nothing slows the card down
    pcie_receive_bytes_per_second: int | None = None
    pcie_send_bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine and the run's processes at one moment. Rates are since the previous sample; the first has none."""

    core_shares: list[float]  # busy share of each core
    load: float | None  # 1-minute load average
    processes: int  # of the run, without the sampler
    cores_used: float | None  # by the run's processes
    memory_bytes: int  # resident, of the run's processes; shared pages count for each
    peak_memory_bytes: int  # maximum so far
    disk_read_bytes_per_second: float | None  # of the whole machine
    disk_write_bytes_per_second: float | None  # of the whole machine
    network_receive_bytes_per_second: float | None  # of the whole machine
    network_send_bytes_per_second: float | None  # of the whole machine


@dataclass(frozen=True, slots=True)
class TelemetryRecord:
    """One sample, by default two per second."""

    time: float  # Unix time
    host: HostReading
    gpus: list[GpuReading]
    sampler_cpu_seconds: float  # CPU time of the sampler so far


class Event(Protocol):
    """A kind, fields (those of a dataclass), and a message that is made from them."""

    kind: ClassVar[EventKind]

    @property
    def message(self) -> str: ...


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

    feature: Literal["batching", "generation", "trimming", "metric", "best-metric"]  # what it replaces
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
    predicted_evaluation_seconds: float | None = None
    measured_evaluation_seconds: float | None = None
    gpu: str | None = None  # as plans name it; None on a CPU

    @property
    def message(self) -> str:
        predicted = "not predicted" if self.predicted_peak_bytes is None else format_bytes(self.predicted_peak_bytes)
        measured = "" if self.measured_peak_bytes is None else f"{format_bytes(self.measured_peak_bytes)} "
        return (
            f"peak memory {predicted} predicted, {measured}{self.measured_peak_is}; time per step "
            f"{_seconds(self.predicted_step_seconds)} predicted, {_seconds(self.measured_step_seconds)} measured"
            f"{self._describe_evaluation()}{self._describe_errors()}"
        )

    def _describe_evaluation(self) -> str:
        if self.predicted_evaluation_seconds is None or self.measured_evaluation_seconds is None:
            return ""
        predicted, measured = self.predicted_evaluation_seconds, self.measured_evaluation_seconds
        return f"; evaluation {_seconds(predicted)} predicted, {_seconds(measured)} measured"

    def _describe_errors(self) -> str:
        """On a GPU: how far off the prediction was, and how to send it in."""
        if self.gpu is None:
            return ""
        pairs = {
            "memory": (self.measured_peak_bytes, self.predicted_peak_bytes),
            "time": (self.measured_step_seconds, self.predicted_step_seconds),
        }
        errors = [
            f"{what} {_error(measured / predicted)}"
            for what, (measured, predicted) in pairs.items()
            if measured and predicted
        ]
        return (
            f". On {self.gpu}: {', '.join(errors) or 'nothing was predicted'}. To help plans for such a GPU, send in "
            "the file of `seqfit calibration export FILE` with an issue of seqfit; no names of yours are in it"
        )


def _error(ratio: float) -> str:
    """Of measured over predicted: '3.1% above the prediction'."""
    return f"{abs(ratio - 1):.1%} {'above' if ratio >= 1 else 'below'} the prediction"


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


EVENT_TYPES: tuple[type[Event], ...] = (
    *(OutOfMemoryEvent, NonFiniteEvent, LossSpikeEvent, SnapshotEvent, ResumeEvent, RecordsDroppedEvent),
    *(FallbackEvent, PredictionEvent, ParallelEvent, EarlyStoppingEvent, PlateauEvent, InterruptedEvent),
    *(EvaluationInterruptedEvent, ThresholdEvent, DataEvent),
)
