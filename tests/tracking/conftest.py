"""A finished run with everything that is exported, and a recording tracker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.rundir import EventKind, files
from seqfit.rundir.records import EvaluationRecord, EventRecord
from tests.tracking.records import START, Recorder, sample, start_run, step_record, write_records


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Finished: steps 10 and 20, two evaluations, one event, samples before, between and after, final scores."""
    path = tmp_path / "demo"
    writer = start_run(path)
    write_records(path, files.STEPS, [step_record(10, START + 10), step_record(20, START + 13, 0.25)])
    scored = [EvaluationRecord(0, "validation", 2.0, {"f1": 1.0}, 9, 0.5, START + 1)]
    scored += [EvaluationRecord(20, "validation", 0.3, {"f1": 60.0}, 9, 0.5, START + 14)]
    write_records(path, files.EVALUATIONS, scored)
    write_records(path, files.EVENTS, [EventRecord(START + 12, EventKind.DATA, "3 rows were truncated")])
    write_records(path, files.TELEMETRY, [sample(START + second, second / 100) for second in (5, 11, 12, 13.5)])
    (path / files.evaluation("test")).write_text(json.dumps({"split": "test", "metrics": {"f1": 58.5}}))
    writer.write_manifest(status="finished", ended=START + 15)
    return path


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
