"""Notes that any process of a run may leave in its directory; failures that never end a run.

Notes that any process of a run may leave in its directory, beside the one that writes it.

In: what went wrong in a process that is about to end. Out: one small file a process, which the next start of the run
turns into events and removes. Only the first process writes records, and it may not live to hear of the others.

    ranks/rank-1.json    {"rank": 1, "kind": "out-of-memory", "message": "...", "data": {"step": 7, ...}}

A fault of the user's own (exit codes 2, 3 and 4) is no better after a restart. Where the launcher has named a folder
for them, it is left there, and every later start of the same group ends at once with the same message.

What a run can do without: predictions, samples, trackers, its page. A failure there is an event, and no run's end.

In: what is attempted, and where events go. Out: the event with the cause, and the run goes on.

    with optional_work("telemetry", "nothing is sampled", writer.event):
        start_the_sampler()                                # PermissionError -> event, 'nothing is sampled: ...'
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqfit.errors import OutOfMemory, SeqfitError, TrainingFailed, describe_error
from seqfit.rundir import files
from seqfit.rundir.masking import mask_data, mask_text
from seqfit.rundir.writer import write_whole

FAULTS = "SEQFIT_FAULTS"  # the folder that a launcher gives its processes
OWN_FAULTS = {kind.exit_code: kind for kind in (SeqfitError, TrainingFailed, OutOfMemory)}


def leave_fault(rank: int, error: SeqfitError) -> None:
    """So that no restart meets it again."""
    folder = os.environ.get(FAULTS)
    if folder is not None and error.exit_code in OWN_FAULTS:
        parts = {"given": error.given, "rule": error.rule, "change": error.change, "hint": error.hint}
        write_note(Path(folder), rank, "fault", str(error), exit_code=error.exit_code, **parts)


def find_fault(folder: Path) -> SeqfitError | None:
    """What a process has left, as it was raised."""
    for note in read_notes(folder):
        if note["kind"] == "fault":
            data = note["data"]
            kind = OWN_FAULTS[data["exit_code"]]
            return kind(data["given"], data["rule"], data["change"], hint=data["hint"])
    return None


def check_no_fault(restarts: int) -> None:
    """Raises what an earlier start of this group has left."""
    folder = os.environ.get(FAULTS)
    fault = find_fault(Path(folder)) if folder is not None and restarts else None
    if fault is not None:
        raise fault


def write_note(run: Path, rank: int, kind: str, message: str, **data: Any) -> None:
    """Leave a note; an earlier one of the same process is replaced."""
    folder = run / files.RANKS
    folder.mkdir(parents=True, exist_ok=True)
    note = {"rank": rank, "kind": kind, "message": mask_text(message), "data": mask_data(data)}
    write_whole(folder / f"rank-{rank}.json", json.dumps(note, ensure_ascii=False) + "\n")


def read_notes(run: Path) -> list[dict[str, Any]]:
    """By rank. One that can't be read is left out: whoever wrote it was killed, and has nothing to say."""
    notes = []
    for path in sorted((run / files.RANKS).glob("rank-*.json")):
        try:
            note = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(note, dict) and {"rank", "kind", "message", "data"} <= note.keys():
            notes.append(note)
    return sorted(notes, key=lambda note: int(note["rank"]))


def remove_notes(run: Path) -> None:
    """They have been read."""
    for path in (run / files.RANKS).glob("rank-*.json"):
        path.unlink(missing_ok=True)


@contextmanager
def optional_work(kind: str, consequence: str, tell: Callable[[str, str], None]) -> Iterator[None]:
    """Runs what is inside; any exception, a MemoryError, too, becomes an event that names its cause."""
    try:
        yield
    except Exception as error:  # of whatever kind: the run does not need what failed
        tell(kind, f"{consequence}: {describe_error(error)}")
