"""Sends runs to an experiment tracker: the records in their directories, or, following, also new ones as they come.

In: run directories. Out: the same records in the tool's own form, at their own steps and times.

    seqfit.track("runs/demo", to="tensorboard")
    ->  [Sent(folder=runs/demo, status='finished', records=312, place='tensorboard/seqfit/demo-3f2a9c1b')]

Following reads the files every two seconds until the manifest says that the run has ended, or nothing was written for
`patience_seconds`, so that it must be dead. It waits as long for a run that is not there yet. Nothing here writes to
the run, so following may be stopped and started again.

A `Stream` puts the four record files in the order of time, at each call those since the last one:

    steps.jsonl      time 100 step 10                     time 103 step 20
    telemetry.jsonl         time 101   time 102                      time 104
    ->   step 10,  sample at step 10,  sample at step 10,  step 20;   the sample of time 104 waits

A step's record is written one step late, so records newer than the newest step record wait for the next: otherwise
their step would depend on when the files are read. They wait 30 seconds at most, because a run that hangs is worth
watching, too. Steps never go back: a step that was repeated after a resume, or a split that was scored again, is
skipped.

`read_step`, `read_evaluation`, `read_sample`: name -> number; what was not measured is absent, never 0. Names are the
fields' names, with their units, in groups: train, phase, between (the steps), a split's name, host, gpu/INDEX, final.

    {"step": 20, "loss": 0.3, "gradient_norm": null, "phase_seconds": {"forward": 2.0}, ...}, previous record: step 10
    ->  {"train/loss": 0.3, "phase/forward_seconds": 0.2, ...}                             seconds per step
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from seqfit.rundir import EventKind, RecordFile, Run, files, mask_data, mask_text, records
from seqfit.tracking.tracker import ToolName, TrackedValue, TrackerOpener, check_tool, identify_run, open_tracker
from seqfit.yaml_text import read_yaml

POLL_SECONDS = 2.0
_PATIENCE_SECONDS = 600.0
_DIED = "died"  # the manifest still says 'running', but no process writes
HELD_SECONDS = 30.0
_EntryKind = Literal["step", "evaluation", "event", "sample"]
# Of records of the same time the step's comes first, because the others are at that step then.
_FILES: tuple[tuple[_EntryKind, str], ...] = (
    ("step", files.STEPS),
    ("evaluation", files.EVALUATIONS),
    ("event", files.EVENTS),
    ("sample", files.TELEMETRY),
)
_ORDER = {kind: order for order, (kind, _) in enumerate(_FILES)}
_Record = Mapping[str, Any]
_ENVIRONMENT = ("command", "commit", "versions", "hardware", "precision", "parameters", "total_steps", "data")


@dataclass(frozen=True, slots=True)
class Entry:
    kind: _EntryKind
    step: int
    steps: int  # of a step's record: since the previous one
    record: dict[str, Any]

    @property
    def time(self) -> float:
        return float(self.record["time"])


class Stream:
    def __init__(self, folder: Path) -> None:
        self._files = [(kind, RecordFile(folder / name)) for kind, name in _FILES]
        self._waiting: list[tuple[_EntryKind, dict[str, Any]]] = []
        self._newest_step_time = float("-inf")
        self._step = 0
        self._scored: dict[str, int] = {}  # split -> step of its last evaluation

    def read(self, *, now: float, final: bool) -> list[Entry]:
        """What is ready at the Unix time `now`; everything if `final`."""
        for kind, file in self._files:
            for record in file.read_new():
                self._waiting.append((kind, record))
                if kind == "step":
                    self._newest_step_time = max(self._newest_step_time, record["time"])
        self._waiting.sort(key=lambda waiting: (waiting[1]["time"], _ORDER[waiting[0]]))
        until = float("inf") if final else max(self._newest_step_time, now - HELD_SECONDS)
        ready = [waiting for waiting in self._waiting if waiting[1]["time"] <= until]
        self._waiting = self._waiting[len(ready) :]
        placed = (self._place(kind, record) for kind, record in ready)
        return [entry for entry in placed if entry is not None]

    def _place(self, kind: _EntryKind, record: dict[str, Any]) -> Entry | None:
        """At its step; None for what was repeated."""
        if kind == "step":
            made = record["step"] - self._step
            if made <= 0:
                return None
            self._step = record["step"]
            return Entry(kind, self._step, made, record)
        if kind == "evaluation":
            if record["step"] <= self._scored.get(record["split"], -1):
                return None
            self._scored[record["split"]] = record["step"]
            return Entry(kind, record["step"], 0, record)
        return Entry(kind, self._step, 0, record)


def read_step(record: _Record, steps: int) -> dict[str, float]:
    """Loss, rates and memory, and the mean of each phase over the steps since the previous record."""
    found = _numbers("train", record, leave_out=("step", "time"))
    for phase, seconds in record.get("phase_seconds", {}).items():
        if phase in records.BETWEEN_STEPS:
            found[f"between/{phase}_seconds"] = seconds
        elif steps > 0:
            found[f"phase/{phase}_seconds"] = seconds / steps
    return found


def read_evaluation(record: _Record) -> dict[str, float]:
    split = record["split"]
    return _numbers(split, record, leave_out=("step", "time", "rows")) | _numbers(split, record["scores"])


def read_sample(record: _Record) -> dict[str, float]:
    """Host and GPUs. The mean of all cores, because a server has hundreds."""
    cores = record["host"].get("core_shares") or []
    found = _numbers("host", record["host"])
    if cores:
        found["host/core_share"] = sum(cores) / len(cores)
    for reading in record["gpus"]:
        group = f"gpu/{reading['gpu']}"
        found |= _numbers(group, reading, leave_out=("gpu",))
        if reading.get("throttle_reasons") is not None:
            found[f"{group}/throttle_reasons"] = float(len(reading["throttle_reasons"]))
    return found


def read_scores(run: Run) -> dict[str, float]:
    """What `seqfit evaluate` measured, after fine-tuning and before it."""
    found: dict[str, float] = {}
    for split in run.evaluated_splits():
        for before in (False, True):
            evaluation = run.evaluation(split, before=before)
            if evaluation is not None:
                found |= _numbers(f"final/{split}{'-before' if before else ''}", evaluation["metrics"])
    return found


def read_config(run: Run) -> dict[str, TrackedValue]:
    """Recipe, strategy and environment by dotted names, with secrets masked; None and empty values are left out."""
    manifest = run.manifest
    strategy = run.path / files.STRATEGY
    whole = {
        "recipe": run.recipe.model_dump(mode="json"),
        "strategy": read_yaml(strategy.read_text("utf-8"))[0] if strategy.is_file() else {},
        "environment": {name: manifest[name] for name in _ENVIRONMENT if name in manifest},
    }
    masked: dict[str, TrackedValue] = mask_data(dict(_flatten("", whole)))
    return masked


def _flatten(name: str, value: Any) -> Iterator[tuple[str, TrackedValue]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _flatten(f"{name}.{number}", inner)
    elif isinstance(value, list | tuple):
        if value:
            yield name, ", ".join(map(str, value))
    elif value is not None:
        yield name, value


def _numbers(group: str, values: _Record, leave_out: tuple[str, ...] = ()) -> dict[str, float]:
    """The fields that are finite numbers."""
    return {
        f"{group}/{name}": float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value) and name not in leave_out
    }


@dataclass(frozen=True, slots=True)
class Sent:
    folder: Path
    status: str
    records: int
    place: str


class Export:
    def __init__(self, run: Run, open_tracker: TrackerOpener, project: str) -> None:
        self.run = run
        self.records = 0
        self._tracker = open_tracker(identify_run(run, project))
        self._tracker.config(read_config(run))
        self._stream = Stream(run.path)

    def send(self, *, final: bool) -> int:
        """Send what is new, or with `final` all that is left; the number of records."""
        entries = self._stream.read(now=time.time(), final=final)
        known = self._tracker.sent_until
        fresh = [entry for entry in entries if known is None or entry.time > known]
        for entry in fresh:
            self._send(entry)
        self._tracker.flush()
        self.records += len(fresh)
        return len(entries)

    def finish(self, status: str) -> Sent:
        self._tracker.finish(status, self.run.manifest.get("ended"), read_scores(self.run))
        return Sent(self.run.path, status, self.records, self._tracker.place)

    def _send(self, entry: Entry) -> None:
        record = entry.record
        if entry.kind == "event":
            if record["kind"] != EventKind.SNAPSHOT:  # there are many, and all is well
                self._tracker.note(record["kind"], mask_text(record["message"]), entry.step, entry.time)
            return
        if entry.kind == "step":
            values = read_step(record, entry.steps)
        else:
            values = read_evaluation(record) if entry.kind == "evaluation" else read_sample(record)
        self._tracker.scalars(values, entry.step, entry.time)


@dataclass(eq=False)
class Following:
    """An export that is repeated until the run has ended."""

    folder: Path
    open_tracker: TrackerOpener
    project: str
    patience_seconds: float = _PATIENCE_SECONDS
    is_abandoned: Callable[[], bool] = bool  # True once the training process is known to be gone
    export: Export | None = field(default=None, init=False)
    last_record: float = field(default_factory=time.monotonic, init=False)

    def poll(self) -> Sent | None:
        """Send what is new; the result once there is nothing left to wait for."""
        abandoned = self.is_abandoned()  # before reading, so that all that was written until then is read
        timed_out = time.monotonic() - self.last_record > self.patience_seconds
        if self.export is None:
            if not (self.folder / files.MANIFEST).is_file() and not (abandoned or timed_out):
                return None
            self.export = Export(Run(self.folder), self.open_tracker, self.project)
            self.last_record = time.monotonic()
            timed_out = False
        status = self.export.run.status
        over = abandoned or timed_out or status != "running"
        if self.export.send(final=over):
            self.last_record = time.monotonic()
        return self.export.finish(_DIED if status == "running" else status) if over else None

    def stop(self) -> Sent | None:
        """Send what is there; the run goes on."""
        if self.export is None:
            return None
        self.export.send(final=True)
        return self.export.finish(self.export.run.status)


def export_runs(folders: Sequence[Path], open_tracker: TrackerOpener, project: str) -> list[Sent]:
    """Send what is there now. A missing directory is an error before anything is sent."""
    sent = []
    for run in [Run(folder) for folder in folders]:
        export = Export(run, open_tracker, project)
        status = run.status  # before the records: what a run that ends now writes last is left for the next export
        export.send(final=True)
        sent.append(export.finish(status))
    return sent


def follow_runs(following: Sequence[Following]) -> list[Sent]:
    """Until all have ended. Ctrl-C sends what was written so far, and stops."""
    going, sent = list(following), list[Sent]()
    try:
        while going:
            for one in tuple(going):
                done = one.poll()
                if done is not None:
                    sent.append(done)
                    going.remove(one)
            if going:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        for one in going:
            one.stop()
        raise
    return sent


def track(
    *runs: Run | str | Path,
    to: ToolName,
    project: str = "seqfit",
    follow: bool = False,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> list[Sent]:
    """Send runs to a tool; sending one again adds only what is new.

    With `follow` until they end: waits for a run that is not there yet, and gives up one that has written nothing for
    `patience_seconds`.
    """
    check_tool(to)
    folders = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    opener = partial(open_tracker, to)
    if not follow:
        return export_runs(folders, opener, project)
    return follow_runs([Following(folder, opener, project, patience_seconds=patience_seconds) for folder in folders])
