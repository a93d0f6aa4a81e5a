from __future__ import annotations

import re
from pathlib import Path

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


def test_a_checkpoint_in_the_making_is_hidden_beside_its_place() -> None:
    folder = Path("runs/a/checkpoint")
    assert files.beside(folder, "new") == Path("runs/a/.checkpoint.new")
    assert files.beside(folder, "old") == Path("runs/a/.checkpoint.old")


def test_a_run_that_is_told_no_place_has_its_name_and_the_time() -> None:
    assert re.fullmatch(r"runs/demo-\d{8}-\d{6}", str(files.new_run("demo")))


@pytest.mark.parametrize(
    ("name", "is_of_a_job"),
    [
        ("job.sbatch", True),
        ("submissions.jsonl", True),
        (files.slurm_log("17"), True),
        (files.slurm_log("17_3"), True),
        ("recipe.yaml", False),
        ("slurm-notes.txt", False),
    ],
)
def test_what_slurm_needs_and_writes_is_known_by_its_name(name: str, is_of_a_job: bool) -> None:
    assert files.is_of_a_job(name) == is_of_a_job
