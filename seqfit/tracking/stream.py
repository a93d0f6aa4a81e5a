"""Four record files become one stream in the order of time, each record with the step it belongs to.

In: a run directory, finished or still growing. Out: at each call the entries since the last one.

    steps.jsonl      time 100 step 10                     time 103 step 20
    telemetry.jsonl         time 101   time 102                      time 104
    ->   step 10,  sample at step 10,  sample at step 10,  step 20;   the sample of time 104 waits

A step's record is written one step late, so records newer than the newest step record wait for the next: otherwise
their step would depend on when the files are read. They wait 30 seconds at most, because a run that hangs is worth
watching, too. Steps never go back: a step that was repeated after a resume, or a split that was scored again, is
skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqfit.rundir import RecordFile, files

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
