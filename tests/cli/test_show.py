from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.cli.main import main
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.rundir import RunWriter, files
from seqfit.rundir.records import StepRecord


def test_what_show_prints_is_the_same_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "bert-agnews", "train.learning_rate=3e-5"]) == 0
    (tmp_path / "shown.yaml").write_text(capsys.readouterr().out)
    assert load_recipe(tmp_path / "shown.yaml") == load_recipe("bert-agnews", ["train.learning_rate=3e-5"])


def test_a_run_also_shows_where_its_time_went_and_stays_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step: dict[str, Any] = dict.fromkeys(StepRecord.__dataclass_fields__, 1)
    writer = RunWriter.create(tmp_path / "run")
    writer.write_text(files.RECIPE, dump_recipe(load_recipe("bert-agnews")))
    writer.write_manifest(phase_seconds={"forward": 6.0, "evaluation": 2.0})
    writer.step(StepRecord(**step | {"step": 4, "step_seconds": 2.0, "phase_seconds": {"forward": 6.0}}))
    writer.close()
    assert main(["show", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines() if line.startswith("#")]
    assert lines[1:] == [
        ["#", "forward", "60.0%", "6.0", "s"],
        ["#", "evaluation", "20.0%", "2.0", "s"],
        ["#", "other", "20.0%", "2.0", "s"],
    ]
    (tmp_path / "shown.yaml").write_text(shown)
    assert load_recipe(tmp_path / "shown.yaml") == load_recipe("bert-agnews")
