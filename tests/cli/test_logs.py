from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main


@pytest.mark.parametrize("options", [[], ["--follow"]])
@pytest.mark.usefixtures("fake_slurm")
def test_the_last_lines_are_printed(
    submitted_run: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (submitted_run / "slurm-17.out").write_text("one\ntwo\nthree\n")
    assert main(["logs", str(submitted_run), "-n", "2", *options]) == 0
    assert capsys.readouterr().out == "two\nthree\n"


def test_a_log_that_is_not_there_is_an_error(submitted_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", str(submitted_run)]) == 2
    assert "is not there yet." in capsys.readouterr().err
