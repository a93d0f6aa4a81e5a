from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seqfit.errors import RecipeError
from seqfit.rundir import Run, files
from seqfit.tracking import follower
from seqfit.tracking.follower import TrackerProcess
from tests.tracking.records import START, start_run, step_record, write_records

pytest.importorskip("tensorboard", reason="tensorboard is not installed; pip install 'seqfit[tensorboard]' has it")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))


def finish_run(path: Path) -> None:
    writer = start_run(path)
    write_records(path, files.STEPS, [step_record(10, START + 1)])
    writer.write_manifest(status="finished", ended=START + 2)


def replace_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Another program instead of the tracker process."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_run_is_followed_from_before_its_start_to_its_end(tmp_path: Path) -> None:
    reported: list[str] = []
    with TrackerProcess(tmp_path / "run", "tensorboard", "p", reported.append):
        finish_run(tmp_path / "run")
    assert reported == []
    (file,) = (tmp_path / "logs").rglob("events*")
    assert b"train/loss" in file.read_bytes()
    assert Run(tmp_path / "run").events() == []


def test_a_tracker_that_fails_is_reported_and_is_an_event_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_python(tmp_path, monkeypatch, "echo first >&2; echo 'no server' >&2; exit 3")
    reported: list[str] = []
    with TrackerProcess(tmp_path / "run", "tensorboard", "p", reported.append):
        finish_run(tmp_path / "run")
    assert reported == ["the run could not be sent to tensorboard: no server"]
    (event,) = Run(tmp_path / "run").events()
    assert (event["kind"], event["message"]) == ("tracking", reported[0])


def test_training_does_not_wait_for_a_slow_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_python(tmp_path, monkeypatch, "exec sleep 2")
    monkeypatch.setattr(follower, "_FINISH_SECONDS", 0.05)
    reported: list[str] = []
    following = TrackerProcess(tmp_path / "run", "tensorboard", "p", reported.append)
    with following:
        finish_run(tmp_path / "run")
    assert "is still sending the run to tensorboard" in reported[0]
    assert following._process is not None
    following._process.wait()


def test_a_program_that_does_not_start_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    reported: list[str] = []
    with TrackerProcess(tmp_path / "run", "tensorboard", "p", reported.append):
        finish_run(tmp_path / "run")
    assert reported[0].startswith("nothing is sent to tensorboard: FileNotFoundError: [Errno 2]")
    assert [event["message"] for event in Run(tmp_path / "run").events()] == reported


def test_a_directory_that_holds_a_run_is_not_followed_and_the_command_for_later_is_reported(
    run_path: Path, tmp_path: Path
) -> None:
    reported: list[str] = []
    with TrackerProcess(run_path, "tensorboard", "p", reported.append):
        pass
    assert not (tmp_path / "logs").exists()
    assert f"seqfit track {run_path} --to tensorboard" in reported[0]


def test_a_run_that_never_started_leaves_nothing(tmp_path: Path) -> None:
    reported: list[str] = []
    with TrackerProcess(tmp_path / "run", "tensorboard", "p", reported.append):
        pass
    assert reported == []
    assert not (tmp_path / "logs").exists()


def test_a_tool_that_is_missing_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        TrackerProcess(tmp_path, "nothing", "p", print)


def test_a_tracker_that_is_killed_is_reported_with_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_python(tmp_path, monkeypatch, "echo working >&2; kill -9 $$")
    reported: list[str] = []
    with TrackerProcess(tmp_path / "run", "tensorboard", "p", reported.append):
        finish_run(tmp_path / "run")
    assert reported == [
        "the run could not be sent to tensorboard: the tracker process was killed by SIGKILL (signal 9)"
    ]
