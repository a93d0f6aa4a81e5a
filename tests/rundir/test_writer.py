from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RunError, TrainingFailed
from seqfit.rundir import EventKind, Run, RunWriter, files
from seqfit.rundir.atomic import write_json, write_text
from seqfit.rundir.records import EvaluationRecord, EventRecord, ResumeEvent, SnapshotEvent, StepRecord
from tests.processes import started, wait_until

STEP: dict[str, Any] = dict.fromkeys(StepRecord.__dataclass_fields__, 1)


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    writer = RunWriter.create(tmp_path / "run")
    writer.write_manifest(status="running")
    yield writer
    writer.close()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_existing_directory_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run"
    inside = path / "precious.txt" if kind == "folder" else path
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("mine")
    with pytest.raises(RunError, match=r"already exists\. A run never writes into .*\. Choose another with --out"):
        RunWriter.create(path)
    assert inside.read_text() == "mine"


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    assert RunWriter.create(tmp_path).path == tmp_path


def test_a_page_that_looks_at_the_run_does_not_keep_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = os.open(tmp_path / files.LOCK, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(look, fcntl.LOCK_SH)
    monkeypatch.setattr("seqfit.rundir.writer.time.sleep", lambda seconds: os.close(look))
    RunWriter(tmp_path).close()


def test_another_writer_is_waited_for_a_moment_only(writer: RunWriter) -> None:
    before = time.monotonic()
    with pytest.raises(RunError, match="another process is writing"):
        RunWriter(writer.path)
    assert time.monotonic() - before > 0.15


def test_a_record_can_be_read_before_the_writer_is_closed(writer: RunWriter) -> None:
    writer.step(StepRecord(**STEP))
    writer.evaluation(EvaluationRecord(1, "validation", 0.5, {"f1": 1.0}, 2, 0.1, 0.0))
    writer.event(ResumeEvent(7))
    writer.event(EventKind.PLAN, "¿qué?")
    run = Run(writer.path)
    assert run.steps() == [STEP]
    assert run.evaluations()[0]["scores"] == {"f1": 1.0}
    typed, plain = run.events()
    assert (typed["kind"], typed["message"], typed["data"]) == ("resume", "resumed from step 7", {"step": 7})
    assert (plain["kind"], plain["message"], plain["data"]) == ("plan", "¿qué?", {})


def test_a_listener_gets_every_event(tmp_path: Path) -> None:
    heard: list[EventRecord] = []
    writer = RunWriter.create(tmp_path, heard.append)
    writer.event(EventKind.PLAN, "two strategies fit")
    writer.close()
    assert [(event.kind, event.message) for event in heard] == [("plan", "two strategies fit")]


def test_a_snapshot_is_an_event_that_listeners_do_not_get(tmp_path: Path) -> None:
    heard: list[EventRecord] = []
    writer = RunWriter.create(tmp_path, heard.append)
    writer.write_manifest(status="running")
    writer.snapshot(SnapshotEvent(120, 100.0, 103.2, 0.2))
    writer.close()
    (event,) = Run(tmp_path).events()
    assert (event["kind"], event["message"]) == ("snapshot", "snapshot of step 120, on the disk after 3.2 s")
    assert event["data"] == {"step": 120, "began": 100.0, "ended": 103.2, "waited_seconds": 0.2}
    assert heard == []


def test_the_manifest_grows(writer: RunWriter) -> None:
    writer.write_manifest(parameters=5)
    writer.write_manifest(status="finished")
    assert Run(writer.path).manifest == {"status": "finished", "parameters": 5}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_non_finite_number_is_null_in_a_record_and_an_event_keeps_it(writer: RunWriter, number: float) -> None:
    writer.step(StepRecord(**{**STEP, "step": 7, "gradient_norm": number}))
    (line,) = (writer.path / files.STEPS).read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["gradient_norm"] is None
    (event,) = Run(writer.path).events()
    assert (event["kind"], event["data"]["values"]) == ("non-finite", {"gradient_norm": str(number)})
    assert (event["data"]["step"], event["data"]["action"], event["data"]["file"]) == (7, "recorded", "steps.jsonl")
    assert event["message"] == f"step 7, steps.jsonl: gradient_norm is {number}, written as null"


def test_a_non_finite_score_is_null_inside_its_record(writer: RunWriter) -> None:
    writer.evaluation(EvaluationRecord(1, "validation", None, {"f1": math.nan, "em": 2.0}, 2, 0.1, 0.0))
    assert Run(writer.path).evaluations()[0]["scores"] == {"f1": None, "em": 2.0}
    assert Run(writer.path).events()[0]["data"]["values"] == {"scores": "{'f1': nan, 'em': 2.0}"}


def test_nan_is_refused_in_a_whole_file_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    write_json(path, {"f1": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"f1": math.nan})
    assert json.loads(path.read_text()) == {"f1": 1.0}
    assert os.listdir(tmp_path) == ["scores.json"]


def test_a_write_that_fails_before_its_rename_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "manifest.json"
    write_text(path, "old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TrainingFailed, match="disk full"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_reader_never_sees_half_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "whole.txt"
    program = """
import itertools, sys
from pathlib import Path
from seqfit.rundir.atomic import write_text
for number in itertools.count():
    write_text(Path(sys.argv[1]), str(number % 10) * 200_000)
"""
    with started([sys.executable, "-c", program, str(path)]) as process:
        _wait_for(path)
        seen = [path.read_text() for _ in range(200)]
        process.kill()
    assert {len(text) for text in seen} == {200_000}
    assert all(len(set(text)) == 1 for text in seen)


def test_a_killed_run_leaves_every_record_but_the_truncated_one_readable(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from seqfit.rundir import RunWriter
from seqfit.rundir.records import StepRecord
writer = RunWriter.create(Path(sys.argv[1]))
writer.write_manifest(status="running")
for number in range(10**9):
    writer.step(StepRecord(**{STEP!r} | {{"step": number}}))
"""
    path = tmp_path / "run"
    with started([sys.executable, "-c", program, str(path)]) as process:
        _wait_for(path / files.STEPS, at_least_bytes=50_000)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    steps = [record["step"] for record in Run(path).steps()]
    assert len(steps) > 100
    assert steps == list(range(len(steps)))
    assert Run(path).status == "running"


def _wait_for(path: Path, at_least_bytes: int = 1) -> None:
    wait_until(lambda: path.exists() and path.stat().st_size >= at_least_bytes, f"{at_least_bytes} bytes of {path}")
