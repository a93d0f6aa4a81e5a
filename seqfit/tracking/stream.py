"""Four record files become one stream in the order of time; and what a record holds, as named numbers.

In: a run directory, finished or still growing. Out: at each call the entries since the last one.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqfit.rundir import RecordFile, Run, files, mask_data, records
from seqfit.tracking.tracker import TrackedValue
from seqfit.yaml_text import read_yaml

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
    """All records of a run, each returned once."""

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


_Record = Mapping[str, Any]
_ENVIRONMENT = ("command", "commit", "versions", "hardware", "precision", "parameters", "total_steps", "data")


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
