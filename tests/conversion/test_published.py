"""The arguments of published studies, written as scripts: what they did is what the recipe says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.conversion import Conversion, convert
from seqfit.validation import load_checked_recipe

STRATEGIES = """
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
from datasets import load_dataset

STRATEGY = "{strategy}"
grad_accumulation = STRATEGY in ("grad_accumulation", "all")
fp16 = STRATEGY in ("fp16", "all")

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
id2label = {{0: "World", 1: "Sports", 2: "Business", 3: "Sci/Tech"}}
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=4, id2label=id2label)
data = load_dataset("ag_news")
data = data.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=128), batched=True)

args = TrainingArguments(
    output_dir="out",
    num_train_epochs=5,
    learning_rate=1e-5,
    per_device_train_batch_size=32,
    per_device_eval_batch_size=32,
    lr_scheduler_type="reduce_lr_on_plateau",
    load_best_model_at_end=True,
    save_strategy="epoch",
    logging_strategy="epoch",
    evaluation_strategy="epoch",
    fp16=fp16,
    fp16_opt_level="02" if fp16 else "01",
    gradient_accumulation_steps=True if grad_accumulation else 4,
    gradient_checkpointing=STRATEGY in ("grad_checkpointing", "all"),
    optim="adafactor" if STRATEGY in ("optim", "all") else "adamw_torch",
)
trainer = Trainer(model=model, args=args, train_dataset=data["train"].shuffle(seed=1).select(range(1000)))
trainer.train()
"""

T5_MEMORY = """
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
from datasets import load_dataset

checkpoint, max_length = "{model}", {length}
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
{parallel}

def preprocess(examples):
    inputs = ["summarize: " + text for text in examples["text"]]
    model_inputs = tokenizer(inputs, max_length=max_length, padding={padding}, truncation=True)
    labels = tokenizer(text_target=examples["summary"], max_length=max_length, padding={padding}, truncation=True)
    model_inputs["labels"] = labels["input_ids"]
    return model_inputs

data = load_dataset("json", data_files={{"train": "train.jsonl", "validation": "dev.jsonl"}})
data = data.map(preprocess, batched=True)
training_args = Seq2SeqTrainingArguments(
    output_dir="out",
    evaluation_strategy="epoch",
    learning_rate=5e-5,
    per_device_train_batch_size=1,
    per_device_eval_batch_size=1,
    weight_decay=0.01,
    save_total_limit=2,
    num_train_epochs=2,
    predict_with_generate=True,
    {more}
)
collator = DataCollatorForSeq2Seq(tokenizer, model=model, padding=True, pad_to_multiple_of=8)
trainer = Seq2SeqTrainer(model, training_args, collator, data["train"], data["validation"], tokenizer=tokenizer)
trainer.train()
"""

CAUSAL_QA = """
import json
from transformers import AutoTokenizer, T5ForConditionalGeneration, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("allenai/unifiedqa-v2-t5-base-1363200")
model = T5ForConditionalGeneration.from_pretrained("allenai/unifiedqa-v2-t5-base-1363200")

def encode(row):
    text = row["question_processed"] + " \\\\n " + row["context_processed"]
    source = tokenizer(text, max_length=2048, padding="max_length", truncation=True, return_tensors="pt")
    target = tokenizer(row["answer_processed"], max_length=2048, padding="max_length", truncation=True)
    source["labels"] = [token if token != tokenizer.pad_token_id else -100 for token in target["input_ids"]]
    return source

rows = load_dataset("json", data_files="causal.jsonl")["train"].map(encode)
Trainer(model=model, args=TrainingArguments("out", num_train_epochs=3, fp16=True), train_dataset=rows).train()
"""


def convert_text(text: str, folder: Path) -> Conversion:
    file = folder / "train.py"
    file.write_text(text)
    return convert(file)


def t5_memory(folder: Path, more: str = "", **changes: Any) -> Conversion:
    parts = {"model": "t5-base", "length": 4096, "padding": '"max_length"', "parallel": "", **changes}
    return convert_text(T5_MEMORY.format(more=more, **parts), folder)


@pytest.mark.parametrize(
    ("strategy", "batch", "written"),
    [
        ("vanilla", 128, {}),  # inverted: the baseline accumulates four micro-batches
        ("grad_accumulation", 32, {}),  # and "gradient accumulation" is True, which counts as 1
        ("fp16", 128, {"precision": "fp16"}),
        ("grad_checkpointing", 128, {"recompute": "blocks"}),
        ("all", 32, {"precision": "fp16", "recompute": "blocks"}),
    ],
)
def test_the_classic_strategies(strategy: str, batch: int, written: dict[str, str], tmp_path: Path) -> None:
    conversion = convert_text(STRATEGIES.format(strategy=strategy), tmp_path)
    recipe = load_checked_recipe(conversion.recipe)
    assert (recipe.train.batch_examples, recipe.train.learning_rate, recipe.train.epochs) == (batch, 1e-5, 5)
    assert recipe.train.schedule.name == "plateau"
    assert recipe.train.optimizer.name == ("adafactor" if strategy == "all" else "adamw")
    assert isinstance(recipe.strategy, dict)
    assert {key: recipe.strategy.get(key) for key in ("precision", "recompute") if key in written} == written
    assert recipe.strategy["micro_batch_examples"] == 32
    assert conversion.script.accumulation == batch // 32
    assert recipe.task.label_values["Sports"] == ["Sports", "1"]
    assert recipe.sources[0].limit == {"train": 1000}
    answered = {one.said.partition("=")[0]: one.note for one in conversion.not_needed}
    assert {"load_best_model_at_end", "fp16_opt_level", "logging_strategy"} <= set(answered)
    assert "save_strategy=epoch" in {one.what for one in conversion.not_read}
    accumulation = next(one for one in conversion.taken if one.said.startswith("gradient_accumulation_steps"))
    assert ("(True counts as 1)" in accumulation.said) == (batch == 32)


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        ("bf16=True, gradient_accumulation_steps=8", "train.batch_examples", 8),
        ("bf16=True", "strategy.precision", "bf16"),
        ("bf16=True, gradient_checkpointing=True", "strategy.recompute", "blocks"),
        ("fp16=True", "allow", ["bf16", "fp16"]),
        ('bf16=True, optim="adafactor"', "train.optimizer.name", "adafactor"),
        ('bf16=True, optim="adamw_apex_fused"', "train.optimizer.name", "adamw"),
    ],
)
def test_the_rows_of_the_t5_memory_study(more: str, path: str, value: object, tmp_path: Path) -> None:
    conversion = t5_memory(tmp_path, more)
    recipe = load_checked_recipe(conversion.recipe)
    found: Any = recipe.model_dump()
    for key in path.split("."):
        found = found[key]
    assert found == value
    assert conversion.missing == []
    assert (recipe.task.max_source_tokens, recipe.task.max_target_tokens) == (4096, 4096)
    assert (conversion.script.padding, conversion.script.per_device_examples) == ("max_length", 1)
    assert conversion.script.pad_multiple == 8
    assert recipe.sources[0].splits == {"train": "train.jsonl", "validation": "dev.jsonl"}


def test_the_padding_that_the_study_found_best_stays_with_the_script(tmp_path: Path) -> None:
    conversion = t5_memory(tmp_path, "bf16=True", padding='"longest"', model="t5-large", length=512)
    assert (conversion.script.padding, conversion.script.max_source_tokens) == ("longest", 512)
    assert "batching" not in conversion.recipe["strategy"]


def test_naive_model_parallelism_is_answered_and_kept_for_the_script(tmp_path: Path) -> None:
    conversion = t5_memory(tmp_path, "bf16=True", parallel="model.parallelize()")
    assert conversion.script.naive_pipeline
    note = next(one.note for one in conversion.not_needed if one.said == "model.parallelize()")
    assert "strategy.parallel=pipeline" in note


def test_unified_qa_joins_question_and_context_by_two_characters(tmp_path: Path) -> None:
    conversion = convert_text(CAUSAL_QA, tmp_path)
    recipe = load_checked_recipe(conversion.recipe)
    assert recipe.task.source == "{question_processed} \\n {context_processed}"
    assert recipe.task.target == "{answer_processed}"
    assert (recipe.task.max_source_tokens, recipe.train.learning_rate) == (2048, 5e-5)
    defaults = [one.said for one in conversion.taken if "transformers' default" in one.said]
    assert len(defaults) == 3, defaults  # batch size, learning rate, seed


ACCELERATE = """
compute_environment: LOCAL_MACHINE
debug: true
distributed_type: MULTI_GPU
downcast_bf16: 'no'
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: fp16
num_machines: 1
num_processes: 2
same_network: true
use_cpu: false
"""


def test_processes_and_precision_of_a_file_of_accelerates_are_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CAUSAL_QA.replace(", fp16=True", ""))
    (tmp_path / "two.yaml").write_text(ACCELERATE)
    (tmp_path / "run.sh").write_text("#SBATCH --gres=gpu:2\naccelerate launch --config_file two.yaml train.py\n")
    conversion = convert(tmp_path / "run.sh")
    assert (conversion.script.processes, conversion.script.precision) == (2, "fp16")
    assert conversion.options["--nproc"] == 2
    assert conversion.recipe["train"]["batch_examples"] == 16
    (tmp_path / "two.yaml").unlink()
    conversion = convert(tmp_path / "run.sh")
    assert conversion.script.starts_all
    assert "--config_file two.yaml" in {one.what for one in conversion.not_read}


SPANISH_QA = """
from datasets import load_dataset
from transformers import MT5ForConditionalGeneration, T5TokenizerFast, Trainer, TrainingArguments

tokenizer = T5TokenizerFast.from_pretrained("google/mt5")
model = MT5ForConditionalGeneration.from_pretrained("google/mt5")

def encode(row):
    text = "question: " + row["question"] + " context: " + row["context"]
    coded = tokenizer(text, truncation=True, padding="longest")
    coded["labels"] = tokenizer(row["answers"]["text"][0])["input_ids"]
    return coded

data = load_dataset("squad_es", "v2.0.0").map(encode)
args = TrainingArguments("out", per_device_train_batch_size=2)
Trainer(model=model, args=args, train_dataset=data["train"], tokenizer=tokenizer).train()
"""


def test_mt5_on_spanish_squad(tmp_path: Path) -> None:
    conversion = convert_text(SPANISH_QA, tmp_path)
    recipe = load_checked_recipe(conversion.recipe)
    assert (recipe.model.name, recipe.sources[0].hub, recipe.task.name) == ("google/mt5", "squad_es", "qa")
    assert recipe.task.source == "question: {question} context: {context}"
    assert (conversion.script.padding, conversion.script.max_source_tokens) == ("longest", None)
    assert "tokenizer(truncation=True)" in {one.what for one in conversion.not_read}  # where, is the tokenizer's choice


CONFIGURATIONS = """
from datasets import load_dataset
from transformers import *
tokenizer = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForSeq2SeqLM.from_pretrained("{model}")
{parallel}
def encode(row):
    coded = tokenizer(row["question"], max_length=256, truncation=True)
    coded["labels"] = tokenizer(text_target=row["answer"], max_length=128, truncation=True)["input_ids"]
    return coded
data = load_dataset("gsm8k", "main").map(encode)
args = Seq2SeqTrainingArguments("out", dataloader_num_workers={workers}, fp16={fp16})
Seq2SeqTrainer(model=model, args=args, train_dataset=data["train"]).train()
"""


@pytest.mark.parametrize(
    ("workers", "gpus", "fp16", "parallel", "model"),
    [
        (1, 1, False, "", "t5-base"),
        (2, 1, False, "", "t5-base"),
        (2, 1, True, "", "t5-base"),
        (2, 2, False, "", "t5-base"),
        (2, 2, False, "model.parallelize()", "t5-base"),
        (2, 2, False, "model.parallelize()", "t5-large"),
    ],
)
def test_the_six_configurations_of_a_course_project(
    workers: int, gpus: int, fp16: bool, parallel: str, model: str, tmp_path: Path
) -> None:
    text = CONFIGURATIONS.format(workers=workers, fp16=fp16, parallel=parallel, model=model)
    (tmp_path / "train.py").write_text(text)
    devices = ",".join(map(str, range(gpus)))
    (tmp_path / "run.sh").write_text(f"export CUDA_VISIBLE_DEVICES={devices}\npython train.py\n")
    conversion = convert(tmp_path / "run.sh")
    recipe = load_checked_recipe(conversion.recipe)
    assert isinstance(recipe.strategy, dict)
    assert (recipe.model.name, recipe.strategy["prefetch"]) == (model, workers)
    assert (conversion.script.visible_gpus, conversion.script.precision) == (gpus, "fp16" if fp16 else "fp32")
    assert conversion.script.naive_pipeline == bool(parallel)
    assert recipe.train.batch_examples == (8 if parallel else 8 * gpus)
    assert {one.what for one in conversion.not_read} == set()
