from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.recipe.load import load_recipe


def test_what_show_prints_is_the_same_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "bert-agnews", "train.learning_rate=3e-5"]) == 0
    (tmp_path / "shown.yaml").write_text(capsys.readouterr().out)
    assert load_recipe(tmp_path / "shown.yaml") == load_recipe("bert-agnews", ["train.learning_rate=3e-5"])
