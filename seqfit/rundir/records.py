"""The records of a run: what is measured at a step, at an evaluation, by the sampler, and what happened in between.

Each is one line of JSON. Quantities end in their unit. A value that could not be had is None, never 0. A number that
is not finite (a gradient's norm of inf) is written as null, for JSON has no NaN, and an event says what it was.

All have the time they were made, on one clock (Unix time of the machine), so that a sample falls into the steps
between two records:

    steps.jsonl      time 100.0 step 10                       time 103.0 step 20
    telemetry.jsonl          time 100.4  time 100.9  ...  time 102.9                  -> samples of the steps 11 to 20
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Phase = Literal[
    "data_wait",  # for the next batch
    "host_to_device",
    "forward",
    "backward",
    "optimizer",
    "communication",  # with other ranks, where nothing else is computed meanwhile
    "evaluation",
    "checkpoint",  # of the best model
    "snapshot",  # of all that an exact resume needs
]
PHASES: tuple[Phase, ...] = get_args(Phase)
BETWEEN_STEPS: frozenset[Phase] = frozenset({"evaluation", "checkpoint", "snapshot"})  # no part of step_seconds
SNAPSHOT = "snapshot"  # the kind of the event whose data is a SnapshotRecord


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
    phase_seconds: dict[str, float] = field(default_factory=dict)  # of PHASES, summed since the last record
    padding_share: float | None = None  # of all tokens since the last record
    model_flops_per_second: float | None = None  # what the model's mathematics needs on real tokens
    mfu: float | None = None  # of the device's peak rate; None where that is not known
    queued_seconds: float | None = None  # of step_seconds, the thread wanted a core and had none; None if not counted
    calibration_seconds: float | None = None  # of a fixed piece of work, done after this step; trials of comparisons


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


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot that is on the disk."""

    step: int
    began: float  # Unix time: training stopped for it
    ended: float  # it had its name on the disk
    waited_seconds: float  # training went on after these; what is left to `ended` was written in the background


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. A reading that the card or its driver does not give is None."""

    gpu: int  # number in sensors.json
    busy_share: float | None = None  # of the time, at least one kernel ran
    memory_busy_share: float | None = None  # of the time, its memory was read or written
    memory_bytes: int | None = None  # used by everybody, the driver included
    temperature_celsius: float | None = None
    power_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded
    core_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    throttle_reasons: list[str] | None = None  # [] where it runs as fast as it may
    pcie_receive_bytes_per_second: int | None = None
    pcie_send_bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine and the run's processes at one moment. Rates are since the sample before, so the first has none."""

    core_shares: list[float]  # busy share of each core
    load: float | None  # of the last minute: processes that run or want to
    processes: int  # of the run, without the sampler
    cores_used: float | None  # by the run's processes
    memory_bytes: int  # resident, of the run's processes; pages that they share count for each
    peak_memory_bytes: int  # the most so far
    disk_read_bytes_per_second: float | None  # of the machine, as are the next three
    disk_write_bytes_per_second: float | None
    network_receive_bytes_per_second: float | None
    network_send_bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class TelemetryRecord:
    """One sample."""

    time: float  # Unix time, the clock of all records
    host: HostReading
    gpus: list[GpuReading]
    sampler_cpu_seconds: float  # what sampling has cost so far
