from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main


def test_cp_writes_the_recipe_and_prints_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cp", "t5-gsm8k", str(tmp_path / "mine.yaml")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'mine.yaml'}\n"
    assert main(["validate", str(tmp_path / "mine.yaml")]) == 0


def test_cp_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("precious")
    assert main(["cp", "t5-gsm8k", str(tmp_path / "mine.yaml")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert (tmp_path / "mine.yaml").read_text() == "precious"
