from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from seqfit.rundir import files
from tests.processes import started
from tests.tracking.records import START, start_run, step_record, write_records

pytest.importorskip("tensorboard", reason="tensorboard is not installed; pip install 'seqfit[tensorboard]' has it")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))


def start_follower(folder: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "seqfit.tracking.follower", str(folder), "--to", "tensorboard", "--project", "p"]
    return started(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def written(tmp_path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (tmp_path / "logs").rglob("events*"))


def test_a_run_whose_process_is_gone_is_sent_to_its_end(tmp_path: Path) -> None:
    with start_follower(tmp_path / "run") as follower:
        start_run(tmp_path / "run")  # later than the follower, and never finished
        write_records(tmp_path / "run", files.STEPS, [step_record(10, START + 1)])
        _, said = follower.communicate(timeout=60)  # closes its standard input, as the end of a process does
    assert (follower.returncode, said) == (0, "")
    assert b"train/loss" in written(tmp_path)
    assert b"died" in written(tmp_path)


def test_a_corrupted_run_is_an_exit_code_and_a_reason(run_path: Path) -> None:
    (run_path / files.STEPS).write_text("not a record\n")
    with start_follower(run_path) as follower:
        _, said = follower.communicate(timeout=60)
    assert follower.returncode == 2
    assert "line 1 is not a record" in said
