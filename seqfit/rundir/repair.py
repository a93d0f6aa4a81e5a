"""Cuts a record file back to what a resumed run goes on from.

steps.jsonl  {"step": 10, ...}      after_step=20      {"step": 10, ...}
             {"step": 20, ...}            ->           {"step": 20, ...}
             {"step": 30, ...}
             {"step": 40, "los
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from seqfit.system import replace_file


def cut_records(path: Path, *, after_step: int | None = None) -> int:
    """Take out a torn last line and the records of later steps, in one go; returns how many whole records went."""
    if not path.is_file():
        return 0
    written = path.read_bytes()
    lines = written.split(b"\n")[:-1]  # what follows the last line's end is torn, or nothing
    kept = [line for line in lines if after_step is None or _step_of(line) <= after_step]
    repaired = b"".join(line + b"\n" for line in kept)
    if repaired != written:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with open(draft, "wb") as stream:
            stream.write(repaired)
            stream.flush()
            os.fsync(stream.fileno())
        replace_file(draft, path)
    return len(lines) - len(kept)


def _step_of(line: bytes) -> int:
    """0 where a line can't be read: it stays, and the reader says what is wrong with it."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0
