"""Records of a small run, and a tracker that writes down what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.rundir import RunWriter, files
from seqfit.rundir.records import EvaluationRecord, EventRecord, GpuReading, HostReading, StepRecord, TelemetryRecord
from seqfit.rundir.writer import append_record
from seqfit.tracking.tracker import Identity, TrackedValue

Record = StepRecord | EvaluationRecord | EventRecord | TelemetryRecord
START = 1_770_000_000.0


def step_record(step: int, time: float, loss: float = 0.5) -> StepRecord:
    return StepRecord(
        step=step, epoch=step / 100, loss=loss, learning_rate=1e-3, gradient_norm=None, examples=8, source_tokens=100,
        target_tokens=20, padded_tokens=30, micro_batches=1, step_seconds=0.2, tokens_per_second=600.0,
        memory_bytes=2**30, time=time, phase_seconds={"forward": 0.5, "backward": 1.0, "evaluation": 3.0},
        padding_share=0.2,
    )  # fmt: skip


def sample(time: float, busy: float) -> TelemetryRecord:
    host = HostReading([0.5, 0.1], 1.0, 1, None, 2**30, 2**31, None, None, None, None)
    gpu = GpuReading(0, busy, temperature_celsius=70.0, throttle_reasons=["power_cap"])
    return TelemetryRecord(time, host, [gpu], 0.01)


def write_records(folder: Path, name: str, records: Sequence[Record]) -> None:
    with open(folder / name, "a", encoding="utf-8") as stream:
        for record in records:
            append_record(stream, asdict(record))


def start_run(path: Path) -> RunWriter:
    """A run that has begun."""
    recipe = load_recipe(
        {
            "model": {"name": "google/mt5-small"},
            "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
            "data": {"path": "https://me:hunter2@host/rows.jsonl"},
            "train": {"steps": 20, "batch_examples": 8, "learning_rate": 1e-3},
        }
    )
    writer = RunWriter.create(path)
    writer.write_text(files.RECIPE, dump_recipe(recipe))
    writer.write_text(files.STRATEGY, "name: default\nprecision: fp32\n")
    writer.write_manifest(
        status="running",
        started=START,
        command="seqfit train x --hf-token hunter2",
        versions={"torch": "2.13.0"},
        hardware={"device": "cpu", "cores": 2},
        data={"fingerprint": "5f0c", "rows": {"train": 80}},
    )
    return writer


@dataclass
class Recording:
    """What a tracker was given."""

    identity: Identity
    place: str = "nowhere"
    sent_until: float | None = None
    settings: dict[str, TrackedValue] = field(default_factory=dict)
    points: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)  # name -> step, time, value
    notes: list[tuple[str, str, int, float]] = field(default_factory=list)
    flushed: int = 0
    end: tuple[str, float | None, dict[str, float]] | None = None

    def config(self, values: Mapping[str, TrackedValue]) -> None:
        self.settings.update(values)

    def scalars(self, values: Mapping[str, float], step: int, time: float) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((step, time, value))

    def note(self, kind: str, message: str, step: int, time: float) -> None:
        self.notes.append((kind, message, step, time))

    def flush(self) -> None:
        self.flushed += 1

    def finish(self, status: str, ended: float | None, scores: Mapping[str, float]) -> None:
        assert self.end is None
        self.end = (status, ended, dict(scores))


@dataclass
class Recorder:
    """Opens recordings and keeps them."""

    opened: list[Recording] = field(default_factory=list)
    sent_until: float | None = None

    def __call__(self, identity: Identity) -> Recording:
        self.opened.append(Recording(identity, sent_until=self.sent_until))
        return self.opened[-1]

    @property
    def only(self) -> Recording:
        (one,) = self.opened
        return one
