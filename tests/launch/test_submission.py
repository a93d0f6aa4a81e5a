from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import RunError
from seqfit.launch.slurm import add_submission, find_submitted, last_submission, read_submissions


@pytest.fixture
def run(workplace: Path) -> Path:
    folder = Path("runs/demo")
    folder.mkdir(parents=True)
    return folder


def test_the_newest_job_of_a_run_is_its_last_line(run: Path) -> None:
    add_submission(run, "17", run / "slurm-17.out")
    add_submission(run, "23", run / "slurm-23.out")
    assert [submission.job for submission in read_submissions(run)] == ["17", "23"]
    assert last_submission(run).log == run / "slurm-23.out"


def test_runs_that_were_submitted_are_found_and_those_of_arrays_too(run: Path) -> None:
    (run / "submissions.jsonl").touch()  # it is about to be
    for folder in (Path("runs/b"), Path("runs/a/0")):
        folder.mkdir(parents=True)
        add_submission(folder, "17", folder / "log")
    assert find_submitted() == [Path("runs/a/0"), Path("runs/b")]


def test_a_run_that_was_not_submitted_is_an_error_that_names_submitted_ones(run: Path) -> None:
    with pytest.raises(RunError, match=r"'runs/demo' was not submitted to Slurm\. .*\. Give one of: none found"):
        last_submission(run)
    Path("runs/b").mkdir()
    add_submission(Path("runs/b"), "17", Path("log"))
    with pytest.raises(RunError, match=r"there is no 'nowhere'\. .* Give one of: runs/b"):
        last_submission(Path("nowhere"))
