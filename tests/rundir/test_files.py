from __future__ import annotations

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
