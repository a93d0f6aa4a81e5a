"""The records of a run: one JSON object per line, for steps, evaluations, telemetry samples and events.

Quantities end in their unit. A value that is not known is None, never 0. Non-finite numbers (a gradient norm of inf)
are written as null, because JSON has no NaN, and an event keeps the value.

All records carry Unix time of one machine, so a telemetry sample belongs to the steps between two step records:

    steps.jsonl      time 100.0 step 10                       time 103.0 step 20
    telemetry.jsonl          time 100.4  time 100.9  ...  time 102.9                  -> samples of steps 11 to 20

`python -m seqfit.rundir.records` prints docs/records.md, which is made from the comments below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, get_args

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
    """What an event is about. A kind with data has a class in seqfit.rundir.events; the others have a message only."""

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


if __name__ == "__main__":
    import runpy

    runpy.run_module("seqfit.rundir.records_page", run_name="__main__")  # which imports this module
