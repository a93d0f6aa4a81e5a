"""What the commands for clusters are tested with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seqfit.cli.main import main
from tests.launch.fixtures import fake_slurm, recipe_file, submitted_run, without_slurm, workplace

__all__ = ["fake_slurm", "recipe_file", "submitted_run", "without_slurm", "workplace"]


@pytest.fixture
def refused(
    recipe_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[str], str], None]:
    """A command ends with code 2 and this message, before it starts a process or writes a file."""

    def start(*_argv: object, **_options: object) -> None:
        raise AssertionError("a process was started")

    def check(argv: Sequence[str], message: str) -> None:
        monkeypatch.setattr("seqfit.processes.subprocess.Popen", start)
        before = set(recipe_file.parent.rglob("*"))
        assert main(list(argv)) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert message in error
        assert set(recipe_file.parent.rglob("*")) == before

    return check
