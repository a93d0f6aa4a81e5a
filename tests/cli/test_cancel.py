from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.launch.slurm import add_submission
from tests.launch.fixtures import FakeSlurm


def test_the_newest_job_of_the_run_is_cancelled(
    submitted_run: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cancel", str(submitted_run)]) == 0
    assert fake_slurm.asked("scancel") == ["17"]
    assert (
        capsys.readouterr().out == f"{submitted_run}: job 17 is cancelled; resume with: seqfit submit {submitted_run}\n"
    )


def test_a_job_that_is_over_is_not_called_cancelled(
    submitted_run: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_slurm.says("COMPLETED")
    assert main(["cancel", str(submitted_run)]) == 0
    assert fake_slurm.asked("scancel") == []
    assert capsys.readouterr().out == f"{submitted_run}: job 17 is over (COMPLETED): nothing to cancel\n"


def test_all_runs_of_an_array_are_cancelled(workplace: Path, fake_slurm: FakeSlurm) -> None:
    for number in range(2):
        (workplace / "sweep" / str(number)).mkdir(parents=True)
        add_submission(workplace / "sweep" / str(number), f"17_{number}", workplace / "log")
    (workplace / "sweep" / "runs.txt").write_text(f"{workplace}/sweep/0\n{workplace}/sweep/1\n")
    assert main(["cancel", "sweep"]) == 0
    assert fake_slurm.asked("scancel") == ["17_0", "17_1"]


@pytest.mark.usefixtures("without_slurm")
def test_without_slurm_it_is_reported(submitted_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", str(submitted_run)]) == 2
    assert "there is no sbatch on this machine." in capsys.readouterr().err
