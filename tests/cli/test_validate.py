from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.recipe.library import library_names


@pytest.mark.parametrize("name", library_names())
def test_every_library_recipe_is_valid(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", name]) == 0
    assert capsys.readouterr().out.startswith("ok: fine-tunes ")


def test_validate_describes_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "t5-gsm8k", "train.steps=7", "data.path=my/math"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok: fine-tunes google-t5/t5-base (text-to-text) to math on my/math",
        "    7 steps of 32 examples, adamw at 0.0003, linear schedule, strategy default",
        "note: train.schedule.warmup_steps is 0, a tenth of the run: the recipe's own 100 are for more than 7 "
        "steps; set train.schedule.warmup_steps to choose another",
    ]


def test_validate_warns_of_a_run_that_ends_in_its_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "t5-gsm8k", "train.steps=20", "train.schedule.warmup_steps=40"]) == 0
    assert "warning: train.schedule.warmup_steps is 40 and the run has 20 steps" in capsys.readouterr().out


def test_mistakes_of_the_fields_are_all_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("extends: t5-gsm8k\nsede: 1\ntrain: {learning_rate: -1, optimizer: {nme: x}}\n")
    assert main(["validate", str(tmp_path / "bad.yaml")]) == 2
    message = capsys.readouterr().err
    assert "3 mistakes" in message
    assert all(field in message for field in ("sede:", "train.learning_rate:", "train.optimizer.nme:"))


def test_mistakes_of_template_metric_and_strategy_are_all_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "demo", "task.source={question", "eval.metrics=[bleurt]", "strategy=magic"]) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in ("'{question'", "bleurt", "magic"))


def test_a_score_that_is_unknown_cannot_choose_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "demo", "eval.best=f2"]) == 2
    assert "eval.best: 'f2' is given" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["validate", "train"])
def test_both_commands_report_all_mistakes_together(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "extends: t5-gsm8k\nsede: 1\ntask: {source: '{q'}\nstrategy: magic\neval: {best: bleu}\n"
    (tmp_path / "bad.yaml").write_text(text + "data: {holdout: {test: 0.6, validation: 0.6}}\n")
    assert main([command, str(tmp_path / "bad.yaml")]) == 2
    message = capsys.readouterr().err
    assert "5 mistakes" in message
    fields = ("sede:", "data.holdout:", "task.source:", "eval.best:", "strategy:")
    assert all(f"\n  {field}" in message for field in fields)
