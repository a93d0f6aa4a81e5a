"""Reads the files of a run for a page: what can be read comes out, and what can't is said in words.

In: a file that may be half written, damaged, or of a process that is gone. Out: its records, and sentences. Training is
strict about the same files (seqfit.rundir.reader), for it goes on from them; a page shows what there is.

    steps.jsonl   {"step": 10, ...}
                  {"st#p": 20, ...}      left out:  "line 2 of steps.jsonl is damaged and left out"
                  {"step": 30, ...}
                  {"step": 40, "lo       left out:  "the last line of steps.jsonl is torn"
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.rundir import files

JsonRecord = Mapping[str, Any]
_NAMED_LINES = 3  # that are damaged; more are counted
# Without these a record says nothing; whatever else it lacks leaves a gap where it would be shown.
_NEEDED: dict[str, dict[str, type | tuple[type, ...]]] = {
    files.STEPS: {"step": int, "time": (int, float), "step_seconds": (int, float)},
    files.EVALUATIONS: {"step": int, "split": str, "scores": dict, "time": (int, float)},
    files.EVENTS: {"time": (int, float), "kind": str, "message": str},
    files.TELEMETRY: {"time": (int, float), "host": dict, "gpus": list},
}


@dataclass(frozen=True)
class RecordLines:
    """The readable records of a file, and what is wrong with the others."""

    records: list[dict[str, Any]]
    gaps: tuple[str, ...] = ()


_READ: dict[Path, tuple[tuple[int, int, int], RecordLines]] = {}


def read_record_lines(path: Path) -> RecordLines:
    """The records of a file that may not be there. One that has not changed since it was last read is not read again:
    a page that is served live is built anew every few seconds."""
    try:
        state = path.stat()
    except OSError:
        return RecordLines([])
    version = state.st_ino, state.st_size, state.st_mtime_ns
    if path not in _READ or _READ[path][0] != version:
        _READ[path] = version, _read_lines(path)  # in the place of an older version, which is never asked for again
    return _READ[path][1]


def _read_lines(path: Path) -> RecordLines:
    try:
        lines = path.read_bytes().split(b"\n")  # bytes: a line may be torn inside a character
    except OSError as error:
        return RecordLines([], (f"{path.name} can't be read ({error.strerror or error})",))
    needed = _NEEDED.get(path.name, {})
    read = [_read_line(line, needed) if line else None for line in lines]
    damaged = [number for number, line in enumerate(lines, 1) if line and read[number - 1] is None]
    is_torn = bool(damaged) and damaged[-1] == len(lines)
    gaps = _say_damage(path.name, damaged[:-1] if is_torn else damaged)
    if is_torn:
        gaps += (f"the last line of {path.name} is torn: whoever wrote it was stopped, or is writing it now",)
    return RecordLines([record for record in read if record is not None], gaps)


def _read_line(line: bytes, needed: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or brackets without end
        return None
    if not isinstance(record, dict):
        return None
    sound = all(isinstance(record.get(name), kind) and record[name] is not True for name, kind in needed.items())
    return record if sound else None


def _say_damage(name: str, numbers: Sequence[int]) -> tuple[str, ...]:
    if not numbers:
        return ()
    if len(numbers) > _NAMED_LINES:
        return (f"{len(numbers)} lines of {name} are damaged and left out, the first is line {numbers[0]}",)
    if len(numbers) == 1:
        return (f"line {numbers[0]} of {name} is damaged and left out",)
    return (f"lines {', '.join(map(str, numbers))} of {name} are damaged and left out",)


def read_object(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON file and what is wrong with it; ({}, '') where there is none."""
    if not path.is_file():
        return {}, ""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} can't be read ({type(error).__name__})"
    return (value, "") if isinstance(value, dict) else ({}, f"{path.name} is damaged: it holds no object")


def number(record: JsonRecord, name: str) -> float | None:
    """A field that is a finite number; None where it is missing or anything else."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def inner(record: JsonRecord, name: str) -> JsonRecord:
    """A field that is a mapping; an empty one where it is missing or anything else."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}
