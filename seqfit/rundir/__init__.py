"""The run directory: the only connection between training and everything after it.

Names are imported on first use: the telemetry sampler needs the records only, and starts several times as fast so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqfit.rundir.reader import Run
    from seqfit.rundir.records import EvaluationRecord, EventKind, EventRecord, StepRecord
    from seqfit.rundir.writer import RunWriter

__all__ = ["EvaluationRecord", "EventKind", "EventRecord", "Run", "RunWriter", "StepRecord"]
_HOMES = {"Run": "reader", "RunWriter": "writer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'seqfit.rundir' has no attribute '{name}'")
    return getattr(importlib.import_module(f"seqfit.rundir.{_HOMES.get(name, 'records')}"), name)
