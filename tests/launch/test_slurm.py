from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from seqfit.errors import RecipeError, RunError
from seqfit.launch import slurm
from tests.launch.fixtures import FakeSlurm

SAID = (
    "JobId=17 ArrayJobId=17 ArrayTaskId=0 JobName=demo UserId=ada(1000) GroupId=ada(1000) Requeue=1 Restarts=1 "
    "BatchFlag=1 Reboot=0 ExitCode=0:0 JobState=RUNNING Reason=None Dependency=(null) RunTime=00:01:10 "
    "TimeLimit=04:00:00 NodeList=n[1-2] BatchHost=n1 Command=/home/ada/runs/a b/job.sbatch\n"
)


def test_the_fields_that_matter_are_found_in_what_scontrol_says() -> None:
    assert slurm.parse_job(SAID) == slurm.JobState("RUNNING", "", "n[1-2]", 1, "00:01:10", "04:00:00")


@pytest.mark.parametrize(
    ("state", "is_running", "is_over"),
    [
        ("PENDING", False, False),
        ("RUNNING", True, False),
        ("COMPLETING", True, False),
        ("COMPLETED", False, True),
        ("CANCELLED", False, True),
        ("TIMEOUT", False, True),
        ("NODE_FAIL", False, True),
    ],
)
def test_a_state_tells_whether_the_job_waits_runs_or_is_over(state: str, is_running: bool, is_over: bool) -> None:
    job = slurm.parse_job(f"JobId=17 JobState={state} Reason=Priority NodeList=(null)")
    assert (job.is_running, job.is_over, job.reason, job.nodes) == (is_running, is_over, "Priority", "")


def test_a_job_that_slurm_has_forgotten_is_none(fake_slurm: FakeSlurm) -> None:
    assert slurm.find_job("17") is None
    fake_slurm.says("PENDING")
    found = slurm.find_job("17")
    assert found is not None
    assert found.state == "PENDING"


def test_the_error_of_a_refused_file_has_slurms_own_message(fake_slurm: FakeSlurm) -> None:
    fake_slurm.refuses("invalid partition specified: gpuu")
    with pytest.raises(RecipeError, match=r"sbatch refused 'job': .*partition specified: gpuu\. .*\. Correct the opt"):
        slurm.submit_file(Path("job"))


def test_options_go_before_the_file(fake_slurm: FakeSlurm) -> None:
    assert slurm.submit_file(Path("job"), ["--array=1,3"]) == "17"
    assert fake_slurm.asked("sbatch") == ["--parsable --array=1,3 job"]


@pytest.mark.usefixtures("without_slurm")
def test_a_machine_without_slurm_is_an_error_in_three_parts() -> None:
    assert not slurm.has_slurm()
    with pytest.raises(RecipeError, match=r"there is no sbatch on this machine\. .*login node has\. .* --dry-run"):
        slurm.require_slurm()
    with pytest.raises(RecipeError, match="there is no scontrol"):
        slurm.find_job("17")


def test_a_controller_that_is_silent_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(RunError, match="scontrol did not respond within 60 s"):
        slurm.find_job("17")
