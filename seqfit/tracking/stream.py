"""Four files of records become one stream in the order of time, each record with the step it belongs to.

In: a run directory, finished or still growing. Out: at each call the entries that came since the last one. Only
complete lines are read, so a line in the making is left for the next call.

    steps.jsonl      time 100 step 10                     time 103 step 20
    telemetry.jsonl         time 101   time 102                      time 104
    ->   step 10,  sample at step 10,  sample at step 10,  step 20;   the sample of time 104 waits

A step's record is written one step late, so what is younger than the newest one waits for the next: otherwise its
step would depend on when the files are read. It waits 30 seconds at most, for a run that hangs is worth watching,
too. Steps never go back: a step that was done again after a resume, or a split that was scored again, is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqfit.errors import RunError
from seqfit.rundir import files

HELD_SECONDS = 30.0
_EntryKind = Literal["step", "evaluation", "event", "sample"]
# Of records of the same time the step's comes first, for the others are at that step then.
_FILES: tuple[tuple[_EntryKind, str], ...] = (
    ("step", files.STEPS),
    ("evaluation", files.EVALUATIONS),
    ("event", files.EVENTS),
    ("sample", files.TELEMETRY),
)
_ORDER = {kind: order for order, (kind, _) in enumerate(_FILES)}


@dataclass(frozen=True, slots=True)
class Entry:
    """One record and its step."""

    kind: _EntryKind
    step: int
    steps_made: int  # of a step's record: since the one before
    record: dict[str, Any]

    @property
    def time(self) -> float:
        """When the record was made."""
        return float(self.record["time"])


class Tail:
    """The lines that a file has got since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._lines = 0

    def read(self) -> list[dict[str, Any]]:
        """Complete lines only; none of a file that is not there yet."""
        try:
            with open(self._path, "rb") as stream:
                stream.seek(self._read_bytes)
                fresh = stream.read()
        except FileNotFoundError:
            return []
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [self._parse(line) for line in whole.split(b"\n")[:-1]]

    def _parse(self, line: bytes) -> dict[str, Any]:
        self._lines += 1
        try:
            record = json.loads(line.decode("utf-8"))
            if not isinstance(record, dict) or "time" not in record:
                raise ValueError("it is no record with a time")
        except ValueError as error:  # not JSON, not UTF-8, or not a record
            raise RunError(
                f"{self._path}, line {self._lines} can't be read ({error})",
                "a complete line of a record file is a JSON object",
                "The file was edited or damaged: remove that line",
            ) from error
        return record


class Stream:
    """All records of a run, each handed out once."""

    def __init__(self, folder: Path) -> None:
        self._tails = [(kind, Tail(folder / name)) for kind, name in _FILES]
        self._waiting: list[tuple[_EntryKind, dict[str, Any]]] = []
        self._newest_step_time = float("-inf")
        self._step = 0
        self._scored: dict[str, int] = {}  # split -> step of its last evaluation

    def read(self, *, now: float, final: bool) -> list[Entry]:
        """What may go out at the Unix time `now`; everything if nothing more will come."""
        for kind, tail in self._tails:
            for record in tail.read():
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
        """At its step; None for what was done again."""
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
