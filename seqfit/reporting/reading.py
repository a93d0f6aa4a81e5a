"""Values of a run's JSON files for a page, whatever state they are in; records: seqfit.rundir.RecordFile."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JsonRecord = Mapping[str, Any]


def read_object(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON file and what is wrong with it; ({}, '') where there is none."""
    if not path.is_file():
        return {}, ""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} can't be read ({type(error).__name__})"
    return (value, "") if isinstance(value, dict) else ({}, f"{path.name} is corrupted: it holds no object")


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
