"""What processes of a run leave for each other, and failures that never end a run.

Only the first process writes records, and it may be gone before it learns of an error elsewhere. So each process may
leave one note in the run directory, which the next start of the run turns into an event and removes:

    ranks/rank-1.json    {"rank": 1, "kind": "out-of-memory", "message": "...", "data": {"step": 7, ...}}

An error that the user has to fix (exit codes 2, 3 and 4) would come back after a restart. Where the launcher has set
SEQFIT_FAULTS to a folder, it is left there, and every later start of the same group ends at once with the same error.

A run does not need predictions, telemetry, trackers or its page. Their failures are events:

    with optional_work(EventKind.TELEMETRY, "nothing is sampled", writer.event):
        start_the_sampler()                    # PermissionError -> event 'nothing is sampled: PermissionError: ...'
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from seqfit.errors import OutOfMemory, SeqfitError, TrainingFailed, describe_error
from seqfit.rundir import files
from seqfit.rundir.atomic import write_text
from seqfit.rundir.masking import mask_data, mask_text
from seqfit.rundir.records import Event, EventKind, EventRecord
from seqfit.rundir.writer import to_record


class RankNotes:
    """The notes in a run directory, or in a launcher's folder of faults: at most one of each process."""

    FAULTS = "SEQFIT_FAULTS"  # the folder that a launcher gives its processes
    OWN_FAULTS: ClassVar = {kind.exit_code: kind for kind in (SeqfitError, TrainingFailed, OutOfMemory)}
    _FAULT = "fault"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / files.RANKS

    def write(self, rank: int, event: Event) -> None:
        """Leave an event for the next start of the run; an earlier one of the same process is replaced."""
        record = to_record(event)
        self._write(rank, record.kind, record.message, record.data)

    def read(self) -> list[EventRecord]:
        kinds = set(EventKind)
        notes = [note for note in self._read() if note["kind"] in kinds]
        return [EventRecord(time.time(), EventKind(note["kind"]), note["message"], note["data"]) for note in notes]

    def remove(self) -> None:
        for path in self._folder.glob("rank-*.json"):
            path.unlink(missing_ok=True)

    @classmethod
    def leave_fault(cls, rank: int, error: SeqfitError) -> None:
        """For the launcher, so that no restart meets it again."""
        folder = os.environ.get(cls.FAULTS)
        if folder is not None and error.exit_code in cls.OWN_FAULTS:
            parts = {"given": error.given, "rule": error.rule, "change": error.change, "hint": error.hint}
            cls(Path(folder))._write(rank, cls._FAULT, str(error), {"exit_code": error.exit_code, **parts})

    def find_fault(self) -> SeqfitError | None:
        for note in self._read():
            if note["kind"] == self._FAULT:
                data = note["data"]
                kind: type[SeqfitError] = self.OWN_FAULTS[data["exit_code"]]
                return kind(data["given"], data["rule"], data["change"], hint=data["hint"])
        return None

    @classmethod
    def check_no_fault(cls, restarts: int) -> None:
        folder = os.environ.get(cls.FAULTS)
        fault = cls(Path(folder)).find_fault() if folder is not None and restarts else None
        if fault is not None:
            raise fault

    def _write(self, rank: int, kind: str, message: str, data: dict[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        note = {"rank": rank, "kind": kind, "message": mask_text(message), "data": mask_data(data)}
        write_text(self._folder / f"rank-{rank}.json", json.dumps(note, ensure_ascii=False) + "\n")

    def _read(self) -> list[dict[str, Any]]:
        """By rank. One that can't be read is skipped: its process was killed while it wrote."""
        notes = []
        for path in sorted(self._folder.glob("rank-*.json")):
            try:
                note = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(note, dict) and {"rank", "kind", "message", "data"} <= note.keys():
                notes.append(note)
        return sorted(notes, key=lambda note: int(note["rank"]))


@contextmanager
def optional_work(kind: EventKind, consequence: str, report: Callable[[EventKind, str], None]) -> Iterator[None]:
    """Runs what is inside; any exception, even a MemoryError, becomes an event that names its cause."""
    try:
        yield
    except Exception as error:  # of whatever kind: the run does not need what failed
        report(kind, f"{consequence}: {describe_error(error)}")
