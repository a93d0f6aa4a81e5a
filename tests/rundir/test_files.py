from __future__ import annotations

import re

import pytest

from seqfit.rundir import files

NAMES = sorted(value for name, value in vars(files).items() if name.isupper())


@pytest.mark.parametrize("name", NAMES)
def test_the_module_docstring_shows_every_name(name: str) -> None:
    assert name in (files.__doc__ or "")


def test_no_two_files_share_a_name() -> None:
    evaluations = [files.evaluation("test"), files.evaluation("test", before=True), files.evaluation("validation")]
    assert evaluations == ["evaluation-test.json", "evaluation-test-before.json", "evaluation-validation.json"]
    assert len({*NAMES, *evaluations}) == len(NAMES) + 3


def test_the_default_run_directory_has_the_name_and_the_time() -> None:
    assert re.fullmatch(r"runs/demo-\d{8}-\d{6}", str(files.new_run("demo")))


@pytest.mark.parametrize(
    ("name", "is_job_file"),
    [
        ("job.sbatch", True),
        ("submissions.jsonl", True),
        (files.slurm_log("17"), True),
        (files.slurm_log("17_3"), True),
        ("recipe.yaml", False),
        ("slurm-notes.txt", False),
    ],
)
def test_files_of_a_slurm_job_are_known_by_their_names(name: str, is_job_file: bool) -> None:
    assert files.is_job_file(name) == is_job_file
