from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main
from tests.launch.fixtures import FakeSlurm, write_progress


def test_all_submitted_runs_are_shown_with_step_and_loss(
    submitted_run: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_slurm.says("RUNNING", NodeList="n1", Restarts=2)
    write_progress(submitted_run, "running", 4)
    assert main(["status"]) == 0
    header, row, log, following = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "job", "queue", "status", "step", "loss", "restarts"]
    assert row.split() == f"{submitted_run} 17 RUNNING on n1 (00:01:10 of 04:00:00) running 4/50 0.2500 2".split()
    assert (log, following) == (f"log: {submitted_run}/slurm-17.out", f"next: seqfit logs {submitted_run} --follow")


@pytest.mark.usefixtures("workplace")
def test_nothing_submitted_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert "nothing in runs/ and comparisons/ was submitted" in capsys.readouterr().out


@pytest.mark.usefixtures("workplace")
def test_a_directory_that_was_not_submitted_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "nowhere"]) == 2
    assert "there is no 'nowhere'." in capsys.readouterr().err
