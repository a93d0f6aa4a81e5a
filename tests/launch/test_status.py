from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.launch.slurm import cancel_runs, read_status
from tests.launch.fixtures import FakeSlurm, write_progress


def test_a_job_that_waits_says_why(submitted_run: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.says("PENDING", Reason="Priority")
    shown = read_status(submitted_run)
    assert (shown.queue, shown.status, shown.step) == ("PENDING (Priority)", None, None)
    assert shown.next_step == "seqfit logs runs/demo --follow"


def test_a_job_that_runs_says_where_and_how_far_it_is(submitted_run: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.says("RUNNING", NodeList="n[1-2]", Restarts=1)
    write_progress(submitted_run, "running", 4)
    shown = read_status(submitted_run)
    assert shown.queue == "RUNNING on n[1-2] (00:01:10 of 04:00:00)"
    assert (shown.step, shown.total_steps, shown.loss, shown.restarts) == (4, 50, 0.25, 1)
    assert not shown.is_over


@pytest.mark.usefixtures("fake_slurm")
def test_the_status_of_a_forgotten_job_comes_from_its_directory(submitted_run: Path) -> None:
    write_progress(submitted_run, "finished", 50, resumed=[1.0, 2.0])
    shown = read_status(submitted_run)
    assert (shown.queue, shown.status, shown.restarts) == ("not in the queue", "finished", 2)
    assert shown.next_step == "seqfit evaluate runs/demo"


@pytest.mark.usefixtures("fake_slurm")
def test_a_run_that_ended_early_says_how_to_resume(submitted_run: Path) -> None:
    write_progress(submitted_run, "interrupted", 3)
    shown = read_status(submitted_run)
    assert shown.is_over
    assert shown.next_step == "see why with seqfit logs runs/demo, then resume with seqfit submit runs/demo"


@pytest.mark.usefixtures("without_slurm")
def test_without_slurm_the_directory_still_speaks(submitted_run: Path) -> None:
    write_progress(submitted_run, "running", 3)
    shown = read_status(submitted_run)
    assert (shown.queue, shown.step) == ("Slurm is not on this machine", 3)
    assert "where Slurm's commands are" in shown.next_step


def test_cancelling_says_how_to_resume_unless_the_run_is_finished(submitted_run: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.says("RUNNING", NodeList="n1")
    write_progress(submitted_run, "running", 3)
    assert list(cancel_runs([submitted_run])) == [
        "runs/demo: job 17 is cancelled; resume with: seqfit submit runs/demo"
    ]
    write_progress(submitted_run, "finished", 50)
    assert list(cancel_runs([submitted_run])) == ["runs/demo is finished; its job 17 was still ending and is cancelled"]
