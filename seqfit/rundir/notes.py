"""Notes that any process of a run may leave in its directory, beside the one that writes it.

In: what went wrong in a process that is about to end. Out: one small file a process, which the next start of the run
turns into events and removes. Only the first process writes records, and it may not live to hear of the others.

    ranks/rank-1.json    {"rank": 1, "kind": "out-of-memory", "message": "...", "data": {"step": 7, ...}}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqfit.rundir import files
from seqfit.rundir.masking import mask_data, mask_text
from seqfit.rundir.writer import write_whole


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
