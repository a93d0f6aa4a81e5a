"""`seqfit convert`: files that are written, exit codes; a plan of a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.inspection import read_given
from seqfit.recipe import load_recipe

SCRIPT = """
from transformers import T5ForConditionalGeneration, T5TokenizerFast, Seq2SeqTrainer, Seq2SeqTrainingArguments
from datasets import load_dataset
tokenizer = T5TokenizerFast.from_pretrained("MODEL")
model = T5ForConditionalGeneration.from_pretrained("MODEL")
data = load_dataset("json", data_files="rows.jsonl")["train"]
def encode(row):
    return tokenizer(row["question"], text_target=row["answer"], max_length=64, truncation=True)
arguments = Seq2SeqTrainingArguments("runs/x", per_device_train_batch_size=2, gradient_accumulation_steps=4)
Seq2SeqTrainer(model=model, args=arguments, train_dataset=data.map(encode)).train()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"why is it {n}?", "answer": f"so {n}"} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "train.py").write_text(SCRIPT)


def test_the_recipe_is_written_and_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "train.py"]) == 0
    printed = capsys.readouterr().out
    assert "2 x 4 x 1 process" in printed
    assert "next: seqfit validate train.yaml" in printed
    assert load_recipe("./train.yaml").train.batch_examples == 8
    assert main(["validate", "train.yaml"]) == 0
    assert main(["convert", "train.py"]) == 2
    assert "a file is never overwritten" in capsys.readouterr().err.lower()
    assert main(["convert", "train.py", "-o", "other.yaml"]) == 0


def test_a_recipe_that_lacks_a_field_is_written_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(SCRIPT.replace('load_dataset("json", data_files="rows.jsonl")["train"]', "find()"))
    assert main(["convert", "train.py", "-o", "mine.yaml"]) == 1
    assert "next: write what is missing into mine.yaml" in capsys.readouterr().out
    assert "# missing: data: needed, but not given." in Path("mine.yaml").read_text()


def test_a_command_line_in_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    words = "torchrun --nproc_per_node 2 run_summarization.py --model_name_or_path t5-small --dataset_name xsum"
    assert main(["convert", f"{words} --output_dir runs/x --fp16"]) == 0
    recipe = load_recipe("./converted.yaml")
    assert (recipe.train.batch_examples, recipe.task.source) == (16, "{document}")
    assert "--out runs/x" in capsys.readouterr().out


def test_a_script_without_a_trainer_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("print('hello')\n")
    assert main(["convert", "train.py"]) == 2
    assert main(["convert", "nowhere.py"]) == 2
    assert "no such file" in capsys.readouterr().err.lower()


def test_a_plan_reads_a_script_and_keeps_how_it_computes() -> None:
    given = read_given("train.py", ["train.steps=3"], command="plan")
    assert given.name == "train"
    assert load_recipe(given.recipe, given.overrides).train.steps == 3
    assert given.script is not None
    assert (given.script.script.per_device_examples, given.script.script.accumulation) == (2, 4)
    assert "settings taken" in given.notes[0]
