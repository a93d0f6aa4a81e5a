"""What somebody types who comes from the Trainer."""

from __future__ import annotations

import pytest

from seqfit.cli.main import main


@pytest.mark.parametrize(
    "typed",
    [
        "--per_device_train_batch_size 8 --gradient_accumulation_steps 4 --fp16 true",
        "--per-device-train-batch-size=8 --gradient-accumulation-steps=4 --fp16",
        "per_device_train_batch_size=8 gradient_accumulation_steps=4 fp16=true",
        "train.per_device_train_batch_size=8 gradient_accumulation_steps=4 strategy.fp16=true",
    ],
)
@pytest.mark.parametrize("command", ["train", "plan", "validate", "show"])
def test_trainer_arguments_are_answered_together_with_what_to_paste(
    command: str, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if command in ("show", "plan"):  # the first looks at no strategy, the second later
        typed = typed.replace("strategy.fp16", "fp16")
    assert main([command, "demo", *typed.split()]) == 2
    message = capsys.readouterr().err
    assert "have 3 mistakes" in message
    assert message.endswith(
        "All of it together: train.batch_examples=32 strategy.micro_batch_examples=8 strategy.precision=fp16 "
        "'allow=[bf16, fp16]'\n"
    )


def test_other_mistakes_are_reported_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "demo", "train.stesp=3", "--max_steps", "5"]) == 2
    message = capsys.readouterr().err
    assert "Did you mean 'steps'?" in message
    assert "Write train.steps=5." in message


def test_a_command_of_an_example_script_is_answered_without_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--model_name_or_path t5-small --train_file a.csv --do_train --output_dir out --num_train_epochs 3"
    assert main(["train", *typed.split()]) == 2
    message = capsys.readouterr().err
    assert "The command has 5 mistakes" in message
    assert "All of it together: model.name=t5-small data.path=a.csv train.epochs=3 --out out" in message
    assert "seqfit train --data FILE --model MODEL" in message


def test_an_option_that_nobody_knows_is_still_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "demo", "--no-such-thing", "8"]) == 2
    assert "No such option: --no-such-thing" in capsys.readouterr().err
