from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.conversion import convert
from seqfit.conversion.commands import read_commands
from seqfit.errors import RecipeError
from seqfit.validation import load_checked_recipe

SUMMARIZATION = """#!/bin/bash
#SBATCH --gres=gpu:2
MODEL=google-t5/t5-small   # a comment
export OUT="runs/dialogsum"
ARGS="--weight_decay 0.01 --warmup_steps 100"
mkdir -p $OUT

CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 examples/pytorch/summarization/run_summarization.py \\
    --model_name_or_path $MODEL \\
    --do_train --do_eval --predict_with_generate \\
    --dataset_name cnn_dailymail --dataset_config "3.0.0" \\
    --source_prefix "summarize: " \\
    # --fp16 \\
    --per_device_train_batch_size=4 --gradient_accumulation_steps 4 \\
    --learning_rate 3e-4 --num_beams 4 --bf16 True \\
    --no_remove_unused_columns \\
    --output_dir ${OUT} $ARGS > log.txt 2>&1
"""


def test_a_summarization_command_with_its_own_defaults_and_columns(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(SUMMARIZATION)
    conversion = convert(tmp_path / "run.sh")
    recipe = load_checked_recipe(conversion.recipe)
    assert recipe.model.name == "google-t5/t5-small"
    assert (recipe.task.source, recipe.task.target, recipe.task.prefix) == ("{article}", "{highlights}", "summarize: ")
    assert (recipe.task.max_source_tokens, recipe.task.max_target_tokens) == (1024, 128)
    assert recipe.train.batch_examples == 4 * 4 * 2
    assert (recipe.train.optimizer.weight_decay, recipe.train.schedule.warmup_steps) == (0.01, 100)
    assert recipe.sources[0].hub_config == "3.0.0"
    assert isinstance(recipe.strategy, dict)
    assert recipe.strategy["precision"] == "bf16"
    assert conversion.options == {"--out": "runs/dialogsum", "--nproc": 2}
    assert conversion.script.processes == 2
    assert (conversion.missing, conversion.not_read) == ([], [])


@pytest.mark.parametrize(
    ("launcher", "processes"),
    [
        ("python", None),
        ("python3 -u", None),
        ("python -m torch.distributed.launch --nproc_per_node 4 --master_port 9901", 4),
        ("torchrun --nnodes 2 --nproc-per-node=4", 8),
        ("accelerate launch --multi_gpu --num_machines 2 --num_processes 8", 8),
        ("deepspeed --num_gpus=3", 3),
        ("deepspeed --include localhost:0,1", 2),
        ("srun --ntasks 1 python", None),
        ("OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=0 python", None),
    ],
)
def test_launchers_say_how_many_processes_there_are(launcher: str, processes: int | None) -> None:
    (command,) = read_commands(f"{launcher} run_glue.py --fp16 --seed 3 --output_dir x")
    assert command.processes == processes
    assert command.options == {"fp16": "", "seed": "3", "output_dir": "x"}


def test_a_translation_command_names_the_column_of_the_language() -> None:
    words = "python run_translation.py --model_name_or_path facebook/mbart-large-50 --dataset_name wmt16"
    conversion = convert(f"{words} --dataset_config_name ro-en --source_lang en_XX --target_lang ro_RO --output_dir x")
    task = load_checked_recipe(conversion.recipe).task
    assert (task.source, task.target) == ("{translation.en}", "{translation.ro}")
    assert (task.source_language, task.target_language) == ("en_XX", "ro_RO")


def test_a_glue_command_reads_the_columns_of_its_task() -> None:
    conversion = convert("python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc --output_dir x")
    assert conversion.recipe["task"]["source"] == "{sentence1} {sentence2}"
    assert conversion.recipe["model"]["kind"] == "classifier"
    assert conversion.recipe["strategy"]["batching"] == "max_length"  # run_glue's own default
    assert [one.partition(":")[0] for one in conversion.missing] == ["task.labels"]


def test_a_question_answering_command_has_its_template() -> None:
    conversion = convert("python run_seq2seq_qa.py --model_name_or_path t5-small --dataset_name squad --output_dir x")
    task = load_checked_recipe(conversion.recipe).task
    assert (task.name, task.source) == ("qa", "question: {question} context: {context}")
    assert (task.target, task.max_source_tokens) == ("{answers.text}", 384)


def test_variables_that_the_script_does_not_set_are_listed(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        'python run_summarization.py --model_name_or_path "${1}" --train_file $D/a.json --output_dir o --seed ${S:-7}\n'
    )
    conversion = convert(tmp_path / "run.sh")
    assert {one.what for one in conversion.not_read} == {"--model_name_or_path", "--train_file"}
    assert conversion.recipe["seed"] == 7
    assert {one.split(":")[0] for one in conversion.missing} == {"model", "data", "task.source", "task.target"}


def test_an_option_that_nobody_knows_is_listed_and_not_dropped() -> None:
    conversion = convert("python run_summarization.py --model_name_or_path t5-small --output_dir x --my_switch 3")
    assert ("--my_switch", "not an argument of the Trainer or of transformers' example scripts") in {
        (one.what, one.why) for one in conversion.not_read
    }


def test_a_second_command_is_listed(tmp_path: Path) -> None:
    one = "python run_summarization.py --model_name_or_path {} --output_dir x\n"
    (tmp_path / "run.sh").write_text(one.format("t5-small") + one.format("t5-base"))
    conversion = convert(tmp_path / "run.sh")
    assert conversion.recipe["model"]["name"] == "t5-small"
    assert ("another command, run_summarization.py", "line 2") in {(one.what, one.place) for one in conversion.not_read}


def test_a_command_of_the_users_own_script_gives_its_options_to_argparse(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "from transformers import T5ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=1e-3)\n"
        "parser.add_argument('--batch-size', type=int)\n"
        "parser.add_argument('--half', action='store_true')\n"
        "args = parser.parse_args()\n"
        "model = T5ForConditionalGeneration.from_pretrained('t5-small')\n"
        "arguments = Seq2SeqTrainingArguments('out', learning_rate=args.lr, bf16=args.half,\n"
        "                                     per_device_train_batch_size=args.batch_size)\n"
        "Seq2SeqTrainer(model=model, args=arguments).train()\n"
    )
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 2 train.py --lr 2e-4 --batch-size 16 --half\n")
    conversion = convert(tmp_path / "run.sh")
    assert conversion.recipe["train"]["learning_rate"] == 2e-4
    assert conversion.recipe["train"]["batch_examples"] == 32
    assert conversion.recipe["strategy"]["precision"] == "bf16"
    alone = convert(tmp_path / "train.py")
    assert alone.recipe["train"]["learning_rate"] == 1e-3
    assert "'--batch-size' has no default" in next(one.why for one in alone.not_read)


@pytest.mark.parametrize("name", ["args.json", "args.yaml"])
def test_the_files_of_hf_argument_parser(name: str, tmp_path: Path) -> None:
    values = {
        "model_name_or_path": "google/mt5-small",
        "dataset_name": "knkarthick/dialogsum",
        "text_column": "dialogue",
        "summary_column": "summary",
        "learning_rate": 1e-4,
        "fp16": False,
        "warmup_ratio": 0.1,
        "my_own": 1,
        "_n_gpu": 1,
    }
    text = json.dumps(values, indent=1) if name.endswith("json") else "\n".join(f"{k}: {v}" for k, v in values.items())
    (tmp_path / name).write_text(text)
    conversion = convert(tmp_path / name)
    recipe = load_checked_recipe(conversion.recipe)
    assert (recipe.task.source, recipe.train.learning_rate) == ("{dialogue}", 1e-4)
    listed = {one.what: one for one in conversion.not_read}
    assert set(listed) == {"warmup_ratio=0.1", "--my_own"}
    assert listed["warmup_ratio=0.1"].place.startswith("line ")


def test_other_programs_have_no_trainer() -> None:
    with pytest.raises(RecipeError, match="has no Trainer") as caught:
        convert("python train_gan.py --fp16 --seed 3 --epochs 9")
    assert caught.value.exit_code == 2


def test_a_command_line_may_be_longer_than_a_file_name() -> None:
    files = "--train_file " + "/".join(["folder"] * 60) + "/train.json"
    conversion = convert(f"python run_summarization.py --model_name_or_path t5-small {files}")
    assert (conversion.is_file, conversion.name) == (False, "the command line")
    assert conversion.recipe["data"]["path"].endswith("folder/train.json")


def test_a_number_of_processes_that_is_not_known_is_listed() -> None:
    conversion = convert("torchrun --nproc_per_node=$GPUS run_glue.py --model_name_or_path t --output_dir x")
    assert "--nproc_per_node" in {one.what for one in conversion.not_read}
