"""The run directory: the only joint between training and everything after it.

`Run` is imported when it is first asked for, with the recipe's schema that it reads: the telemetry sampler needs the
records alone, and starts several times as fast without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from seqfit.rundir.records import EvaluationRecord, EventRecord, StepRecord
from seqfit.rundir.writer import RunWriter

if TYPE_CHECKING:
    from seqfit.rundir.reader import Run

__all__ = ["EvaluationRecord", "EventRecord", "Run", "RunWriter", "StepRecord"]


def __getattr__(name: str) -> Any:
    if name != "Run":
        raise AttributeError(f"module 'seqfit.rundir' has no attribute '{name}'")
    return importlib.import_module("seqfit.rundir.reader").Run
