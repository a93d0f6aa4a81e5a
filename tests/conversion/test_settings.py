"""How a script itself computes, which its prediction as it is needs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from seqfit.conversion import ScriptSettings, convert
from seqfit.conversion.settings import BEFORE_5

SCRIPT = """
{first}
from datasets import load_dataset
from transformers import *
tokenizer = AutoTokenizer.from_pretrained("t5-small")
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small"{load})
{model}
def encode(rows):
    inputs = tokenizer(rows["text"], max_length=512, truncation=True{source})
    inputs["labels"] = tokenizer(text_target=rows["summary"], max_length=64, truncation=True{target})["input_ids"]
    return inputs
data = load_dataset("json", data_files="rows.jsonl")["train"].map(encode)
args = Seq2SeqTrainingArguments("out", {args})
Seq2SeqTrainer(model=model, args=args, train_dataset=data{trainer}).train()
"""
PARTS = dict.fromkeys(("first", "load", "model", "source", "target", "args", "trainer"), "")


def read(folder: Path, **parts: str) -> ScriptSettings:
    (folder / "train.py").write_text(SCRIPT.format(**{**PARTS, **parts}))
    return convert(folder / "train.py").script


def command(line: str) -> ScriptSettings:
    return convert(line).script


def test_of_a_plain_script_transformers_defaults_are_left_open(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.name.endswith("train.py")
    expected = ScriptSettings(found.name, max_source_tokens=512, max_target_tokens=64)
    assert found == expected


@pytest.mark.parametrize(
    ("parts", "changes"),
    [
        ({"args": "per_device_train_batch_size=2, gradient_accumulation_steps=16"},
         {"per_device_examples": 2, "accumulation": 16}),
        ({"source": ', padding="max_length"'}, {"padding": "max_length"}),
        ({"target": ', padding="max_length"'}, {"target_padding": "max_length"}),
        ({"args": "bf16=True, gradient_checkpointing=True"}, {"precision": "bf16", "checkpointing": True}),
        ({"args": 'optim="adamw_bnb_8bit"'}, {"optimizer": "adamw_bnb_8bit"}),
        ({"load": ", torch_dtype=torch.bfloat16"}, {"weights": "bfloat16"}),
        ({"load": ', attn_implementation="eager"'}, {"attention": "eager"}),
        ({"load": ', device_map="auto"'}, {"naive_pipeline": True}),
        ({"load": ', device_map={"": 0}'}, {}),
        ({"load": ", load_in_8bit=True"}, {"quantized_bits": 8}),
        ({"model": "model.parallelize()"}, {"naive_pipeline": True, "before_5": "parallelize="}),
        ({"args": "group_by_length=True"}, {"sorts_by_length": True, "before_5": "group_by_length="}),
        ({"args": 'train_sampling_strategy="group_by_length"'}, {"sorts_by_length": True}),
        ({"trainer": ", tokenizer=tokenizer"}, {"before_5": "Seq2SeqTrainer(tokenizer=)"}),
        ({"args": 'deepspeed="z3.json"'}, {"sharding": "deepspeed"}),
        ({"first": 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,2"'}, {"visible_gpus": 2}),
    ],
)  # fmt: skip
def test_a_setting_that_is_given_is_read(parts: dict[str, str], changes: dict[str, object], tmp_path: Path) -> None:
    plain = read(tmp_path)
    assert read(tmp_path, **parts) == dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


RUN = "run_summarization.py --model_name_or_path t5-small --dataset_name xsum"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"python {RUN}", (None, False, None)),
        (f"torchrun --nproc_per_node 2 {RUN}", (2, False, None)),
        (f"torchrun {RUN}", (None, False, None)),
        (f"accelerate launch {RUN}", (None, True, None)),
        (f"accelerate launch --num_processes 4 {RUN}", (4, False, None)),
        (f"deepspeed {RUN}", (None, True, None)),
        (f"CUDA_VISIBLE_DEVICES=1,3 python {RUN}", (None, False, 2)),
        (f"export CUDA_VISIBLE_DEVICES=0; python {RUN}", (None, False, 1)),
    ],
)
def test_processes_and_gpus_of_a_command(line: str, expected: tuple[int | None, bool, int | None]) -> None:
    found = command(line)
    assert (found.processes, found.starts_all, found.visible_gpus) == expected


def test_pad_to_max_length_of_an_example_script_pads_both_sides() -> None:
    found = command(f"python {RUN} --pad_to_max_length --max_source_length 256")
    assert (found.padding, found.target_padding) == ("max_length", "max_length")
    assert (found.max_source_tokens, found.max_target_tokens) == (256, 128)


def test_several_gpus_in_sight_multiply_the_global_batch() -> None:
    conversion = convert(f"CUDA_VISIBLE_DEVICES=0,1,2,3 python {RUN} --per_device_train_batch_size 20")
    assert conversion.recipe["train"]["batch_examples"] == 80
    assert conversion.options["--nproc"] == 4


def test_what_marks_an_earlier_version_is_not_an_argument_of_this_one() -> None:
    from transformers import Seq2SeqTrainingArguments

    fields = {one.name for one in dataclasses.fields(Seq2SeqTrainingArguments)}
    assert not set(BEFORE_5) & fields


def test_a_mapping_of_arguments_is_read_like_a_file_of_them(tmp_path: Path) -> None:
    arguments = {"gradient_accumulation_steps": True, "per_device_train_batch_size": 32, "fp16": True}
    (tmp_path / "args.json").write_text(json.dumps(arguments))
    for given in (arguments, tmp_path / "args.json"):
        script = convert(given).script
        assert (script.accumulation, script.per_device_examples, script.precision) == (1, 32, "fp16")
        assert script.arguments["gradient_accumulation_steps"] == 1
        assert script.unread == {}


def test_arguments_known_only_when_the_script_runs_are_listed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(**{**PARTS, "args": "fp16=has_gpu(), seed=3"}))
    script = convert(tmp_path / "train.py").script
    assert (script.unread, script.arguments["seed"], script.hides_arguments) == ({"fp16": "fp16=has_gpu()"}, 3, False)
    (tmp_path / "train.py").write_text(SCRIPT.format(**{**PARTS, "args": "**read_options()"}))
    assert convert(tmp_path / "train.py").script.hides_arguments
