"""The run directory: the only joint between training and everything after it."""

from seqfit.rundir.records import EvaluationRecord, EventRecord, StepRecord
from seqfit.rundir.run import Run
from seqfit.rundir.writer import RunWriter

__all__ = ["EvaluationRecord", "EventRecord", "Run", "RunWriter", "StepRecord"]
