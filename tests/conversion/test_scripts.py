"""Scripts as people write them: each test is a small look-alike of one peculiarity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.conversion import Conversion, convert, format_conversion, write_conversion
from seqfit.errors import RecipeError
from seqfit.validation import load_checked_recipe

HEAD = """
from datasets import load_dataset
from transformers import *
tokenizer = AutoTokenizer.from_pretrained("t5-small")
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
data = load_dataset("xsum")
"""
ENCODE = """
def encode(examples):
    inputs = tokenizer(examples["document"], max_length=512, truncation=True)
    labels = tokenizer(examples["summary"], max_length=64, truncation=True)
    inputs["labels"] = labels["input_ids"]
    return inputs
data = data.map(encode, batched=True)
"""
TRAIN = """
Seq2SeqTrainer(model=model, args=args, train_dataset=data["train"], eval_dataset=data["validation"]).train()
"""
ARGS = 'args = Seq2SeqTrainingArguments(output_dir="out")\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def read(text: str, folder: Path, name: str = "train.py") -> Conversion:
    (folder / name).write_text(text)
    return convert(folder / name)


def get(conversion: Conversion, path: str) -> Any:
    found: Any = conversion.recipe
    for key in path.split("."):
        found = found.get(key, {}) if isinstance(found, dict) else {}
    return found


def listed(conversion: Conversion) -> str:
    return "\n".join(f"{one.place}: {one.what}: {one.why}" for one in conversion.not_read)


def test_a_plain_script_is_a_whole_recipe(place: Path) -> None:
    conversion = read(HEAD + ENCODE + ARGS + TRAIN, place)
    recipe = load_checked_recipe(conversion.recipe)
    assert (conversion.missing, conversion.not_read) == ([], [])
    assert (recipe.task.name, recipe.task.source, recipe.task.target) == ("summarize", "{document}", "{summary}")
    assert (recipe.task.max_source_tokens, recipe.task.max_target_tokens) == (512, 64)
    assert (recipe.train.batch_examples, recipe.train.learning_rate, recipe.train.epochs, recipe.seed) == (
        8,
        5e-5,
        3,
        42,
    )


BUILD = "args = Seq2SeqTrainingArguments('out', learning_rate={})"
VALUES: dict[str, tuple[str, float | None]] = {
    "a constant": ("RATE = 3e-4\n" + BUILD.format("RATE"), 3e-4),
    "an expression": (BUILD.format("2 * 1e-4 if True else 1"), 2e-4),
    "a text": (BUILD.format("'1e-4'"), 1e-4),
    "set later": ("args = Seq2SeqTrainingArguments('out')\nargs.learning_rate = 7e-5", 7e-5),
    "unpacked": ("given = dict(learning_rate=1e-3)\nargs = Seq2SeqTrainingArguments('out', **given)", 1e-3),
    "updated": ("given = {}\ngiven.update(learning_rate=2e-3)\nargs = Seq2SeqTrainingArguments('o', **given)", 2e-3),
    "unpacked, unknown": ("args = Seq2SeqTrainingArguments('o', **{k: v for k, v in pairs()})", None),
    "of a class": ("class C:\n    rate = 4e-4\n" + BUILD.format("C.rate"), 4e-4),
    "of an object": (
        "class C:\n    def __init__(self, r=5e-4):\n        self.rate = r\nc = C()\n" + BUILD.format("c.rate"),
        5e-4,
    ),
    "of a dataclass": ("@dataclass\nclass C:\n    rate: float = 6e-4\n" + BUILD.format("C().rate"), 6e-4),
    "a default": (f"def build(rate=8e-4):\n    {BUILD.format('rate')}\n    return args\nargs = build()", 8e-4),
    "nested": ("cfg = {'train': {'lr': 9e-4}}\n" + BUILD.format("cfg['train']['lr']"), 9e-4),
    "in a branch": ("lr = 1e-4\nif os.environ.get('FAST'):\n    lr = 1e-3\n" + BUILD.format("lr"), None),
    "computed": (BUILD.format("find_rate()"), None),
    "imported": ("import config\n" + BUILD.format("config.RATE"), None),
}


@pytest.mark.parametrize(("code", "value"), VALUES.values(), ids=VALUES)
def test_the_value_of_an_argument_is_found_or_listed(code: str, value: float | None, place: Path) -> None:
    conversion = read(HEAD + ENCODE + code + TRAIN, place)
    if value is None:
        assert "learning_rate" in listed(conversion) or "**" in listed(conversion)
        assert "learning_rate" not in conversion.recipe.get("train", {})
    else:
        assert get(conversion, "train.learning_rate") == value


def test_constants_of_a_module_next_to_the_script(place: Path) -> None:
    (place / "settings.py").write_text("RATE = 1e-4\nclass Paths:\n    out = 'runs/a'\n")
    code = "from settings import *\nargs = Seq2SeqTrainingArguments(Paths.out, learning_rate=RATE)\n"
    conversion = read(HEAD + ENCODE + code + TRAIN, place)
    assert get(conversion, "train.learning_rate") == 1e-4
    assert conversion.options["--out"] == "runs/a"


def test_every_argument_that_is_given_is_somewhere_in_the_report(place: Path) -> None:
    given = (
        "per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-4, warmup_ratio=0.1, "
        "logging_dir='logs', save_strategy='epoch', fp16=has_gpu(), optim='lion_32bit', push_to_hub=True, bf16=False, "
        "group_by_length=True, report_to='wandb', metric_for_best_model='eval_rouge1', my_own=1"
    )
    conversion = read(HEAD + ENCODE + f"args = Seq2SeqTrainingArguments('out', {given})\n" + TRAIN, place)
    report = format_conversion(conversion)
    for argument in given.split(", "):
        assert argument.partition("=")[0] in report, argument
    load_checked_recipe(conversion.recipe)


@pytest.mark.parametrize(
    ("texts", "prefix", "source"),
    [
        ('["summarize: " + x for x in examples["document"]]', "summarize: ", "{document}"),
        ('[f"{prefix}{x}" for x in examples["document"]]', "short: ", "{document}"),
        ('[prefix + x for x in examples["document"]]', "short: ", "{document}"),
        ('examples["document"]', None, "{document}"),
        ('[ex["en"] for ex in examples["translation"]]', None, "{translation.en}"),
        ('[q + " [SEP] " + c for q, c in zip(examples["q"], examples["c"])]', None, "{q} [SEP] {c}"),
        ('["question: {} context: {}".format(q, c) for q, c in zip(examples["q"], examples["c"])]', None,
         "question: {q} context: {c}"),
        ('["grammar: " + str(x).strip() for x in examples["document"]]', "grammar: ", "{document}"),
        ('[a["text"][0] for a in examples["answers"]]', None, "{answers.text}"),
        ('[make(x) for x in examples["document"]]', None, "{document}"),
    ],
)  # fmt: skip
def test_the_texts_of_a_preprocess_function(texts: str, prefix: str | None, source: str, place: Path) -> None:
    encode = ENCODE.replace('tokenizer(examples["document"]', f"tokenizer({texts}")
    conversion = read(HEAD + 'prefix = "short: "\n' + encode + ARGS + TRAIN, place)
    assert get(conversion, "task.source") == source
    assert (get(conversion, "task.prefix") or None) == prefix
    assert ("make" in listed(conversion)) == ("make(" in texts)


@pytest.mark.parametrize(
    "labels",
    [
        'labels = tokenizer(text_target=examples["summary"], max_length=64, truncation=True)\n    '
        'inputs["labels"] = labels["input_ids"]',
        "with tokenizer.as_target_tokenizer():\n        "
        'labels = tokenizer(examples["summary"], max_length=64, truncation=True)\n    '
        'inputs["labels"] = labels["input_ids"]',
        'y = tokenizer(examples["summary"], max_length=64, truncation=True).input_ids\n    '
        'y = [[t if t != 0 else -100 for t in row] for row in y]\n    inputs["labels"] = y',
        'second = tokenizer(examples["summary"], max_length=64, truncation=True)\n    '
        'return {"input_ids": inputs["input_ids"], "labels": second["input_ids"]}',
    ],
)
def test_the_targets_tokenizer_call_is_distinguished_from_the_sources(labels: str, place: Path) -> None:
    encode = (
        "def encode(examples):\n"
        '    inputs = tokenizer(examples["document"], max_length=512, truncation=True)\n'
        f"    {labels}\n    return inputs\ndata = data.map(encode, batched=True)\n"
    )
    conversion = read(HEAD + encode + ARGS + TRAIN, place)
    assert (get(conversion, "task.source"), get(conversion, "task.target")) == ("{document}", "{summary}")
    assert (get(conversion, "task.max_source_tokens"), get(conversion, "task.max_target_tokens")) == (512, 64)


def test_columns_that_the_script_renames_or_makes(place: Path) -> None:
    code = """
import pandas as pd
from datasets import Dataset
frame = pd.read_csv("reviews.csv").rename(columns={"Review": "document"})
frame["summary"] = frame["Title"] + ". " + frame["Verdict"]
data = Dataset.from_pandas(frame).train_test_split(test_size=0.2)
"""
    train = TRAIN.replace('data["validation"]', 'data["test"]')
    conversion = read(HEAD.replace('data = load_dataset("xsum")', "") + code + ENCODE + ARGS + train, place)
    assert (get(conversion, "task.source"), get(conversion, "task.target")) == ("{Review}", "{Title}. {Verdict}")
    assert get(conversion, "data.path") == "reviews.csv"
    assert get(conversion, "data.holdout") == {"validation": 0.2, "test": 0.0}


def test_a_data_set_class_of_the_scripts_own(place: Path) -> None:
    code = """
import pandas as pd
class Rows(torch.utils.data.Dataset):
    def __init__(self, frame, tokenizer, length=256):
        self.frame, self.tokenizer, self.length = frame, tokenizer, length
    def __getitem__(self, index):
        row = self.frame.iloc[index]
        source = self.tokenizer("fix: " + row["bad"], max_length=self.length, padding="max_length", truncation=True)
        target = self.tokenizer(row.good, max_length=32, padding="max_length", truncation=True)
        return {"input_ids": source["input_ids"], "labels": target["input_ids"]}
train, test = Rows(pd.read_csv("a_train.tsv", sep="\\t"), tokenizer), Rows(pd.read_csv("a_val.tsv"), tokenizer)
args = Seq2SeqTrainingArguments("out")
Seq2SeqTrainer(model, args, train_dataset=train, eval_dataset=test).train()
"""
    conversion = read(HEAD.replace('data = load_dataset("xsum")', "") + code, place)
    assert (get(conversion, "task.prefix"), get(conversion, "task.source")) == ("fix: ", "{bad}")
    assert (get(conversion, "task.target"), get(conversion, "task.max_source_tokens")) == ("{good}", 256)
    assert get(conversion, "data.splits") == {"train": "a_train.tsv", "validation": "a_val.tsv"}
    assert conversion.script.padding == "max_length"


def test_a_branch_that_is_not_known_leaves_a_value_open(place: Path) -> None:
    encode = """
def encode(row):
    prefix = ""
    if row["document"].startswith("x"):
        prefix = "short: "
    inputs = tokenizer(prefix + row["document"], max_length=512, truncation=True)
    inputs["labels"] = tokenizer(row["summary"], max_length=64, truncation=True)["input_ids"]
    return inputs
data = data.map(encode)
"""
    conversion = read(HEAD + encode + ARGS + TRAIN, place)
    assert [one.partition(":")[0] for one in conversion.missing] == ["task.source"]
    assert "it depends on the 'if' in line" in listed(conversion)
    assert get(conversion, "task.max_source_tokens") == 512


def test_lora_early_stopping_and_the_optimizer_by_hand(place: Path) -> None:
    code = """
from peft import LoraConfig, get_peft_model
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=16, target_modules=["q", "v"], task_type="SEQ_2_SEQ_LM"))
model.gradient_checkpointing_enable()
optimizer = Adafactor(model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False, warmup_init=False)
schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=10)
args = Seq2SeqTrainingArguments("out", learning_rate=5e-5, eval_strategy="steps", eval_steps=50)
Seq2SeqTrainer(model=model, args=args, train_dataset=data["train"], optimizers=(optimizer, schedule),
               callbacks=[EarlyStoppingCallback(early_stopping_patience=5)]).train()
"""
    conversion = read(HEAD + ENCODE + code, place)
    recipe = load_checked_recipe(conversion.recipe)
    assert recipe.model.lora is not None
    assert (recipe.model.lora.rank, recipe.model.lora.alpha, recipe.model.lora.targets) == (4, 16, ["q", "v"])
    assert (recipe.train.optimizer.name, recipe.train.learning_rate) == ("adafactor", 1e-3)
    assert (recipe.train.schedule.name, recipe.train.schedule.warmup_steps) == ("constant", 10)
    assert recipe.eval.early_stopping is not None
    assert (recipe.eval.early_stopping.patience, recipe.eval.every_steps) == (5, 50)
    assert "learning_rate=0.001, and that is taken" in listed(conversion)  # the Trainer's own is never used
    assert conversion.script.checkpointing


def test_a_classifier_learns_the_column_label(place: Path) -> None:
    code = """
from datasets import load_dataset
from transformers import AutoTokenizer, BertForSequenceClassification, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("bert-base-uncased", model_max_length=256)
model = BertForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=3)
ds = load_dataset("csv", data_files="reviews.csv", split="train").rename_column("stars", "label")
ds = ds.map(lambda x: tok(x["title"], x["body"], truncation=True, padding="max_length"), batched=True)
ds = ds.train_test_split(0.1)
Trainer(model, TrainingArguments("out"), train_dataset=ds["train"], eval_dataset=ds["test"]).train()
"""
    conversion = read(code, place)
    recipe = load_checked_recipe(conversion.recipe)
    assert (recipe.task.source, recipe.task.target) == ("{title} {body}", "{stars}")
    assert (recipe.task.labels, recipe.model.kind) == (["0", "1", "2"], "classifier")
    assert recipe.task.max_source_tokens == 256


def test_the_first_trainer_counts_and_others_are_listed(place: Path) -> None:
    again = 'args2 = Seq2SeqTrainingArguments("two", learning_rate=1e-3)\n' + TRAIN.replace("args=args", "args=args2")
    conversion = read(HEAD + ENCODE + ARGS + TRAIN + again, place)
    assert conversion.options["--out"] == "out"
    assert "another Trainer" in listed(conversion)
    assert "other training arguments" in listed(conversion)


def test_arguments_that_are_not_in_the_script_get_no_defaults_of_transformers(place: Path) -> None:
    conversion = read(HEAD + ENCODE + TRAIN, place)
    assert "'args' is not defined in this script" in listed(conversion)
    assert "train" not in conversion.recipe


def test_a_trainer_behind_a_flag_is_read(place: Path) -> None:
    code = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--do_train", action="store_true")
given = parser.parse_args()
if given.do_train:
    args = Seq2SeqTrainingArguments("out", learning_rate=1e-4)
    {TRAIN.strip()}
"""
    assert get(read(HEAD + ENCODE + code, place), "train.learning_rate") == 1e-4


def test_a_notebook_is_read_cell_by_cell(place: Path) -> None:
    cells = [
        "!pip install transformers\n%matplotlib inline\n" + HEAD,
        "this is no python",
        ENCODE,
        "# notes",
        ARGS + TRAIN,
    ]
    notebook = {"cells": [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in cells]}
    notebook["cells"].insert(0, {"cell_type": "markdown", "source": ["# Title"]})
    conversion = read(json.dumps(notebook), place, "train.ipynb")
    assert get(conversion, "task.source") == "{document}"
    assert {one.place for one in conversion.taken if one.said.startswith("output_dir")} == {"cell 6, line 1"}
    assert "cell 3, line 1: a cell: it is not Python" in listed(conversion)


def test_a_notebook_that_starts_an_example_script(place: Path) -> None:
    text = "!python run_summarization.py \\\n  --model_name_or_path t5-small \\\n  --dataset_name xsum --output_dir out"
    notebook = {"cells": [{"cell_type": "code", "source": "import os"}, {"cell_type": "code", "source": text}]}
    conversion = read(json.dumps(notebook), place, "train.ipynb")
    assert (get(conversion, "task.source"), get(conversion, "model.name")) == ("{document}", "t5-small")


def test_nothing_of_a_script_is_executed(place: Path) -> None:
    code = f"open({str(place / 'proof')!r}, 'w').write('ran')\nimport os; os.system('touch {place}/proof')\n"
    read(code + HEAD + ENCODE + ARGS + TRAIN, place)
    assert not (place / "proof").exists()


ODD = (
    *("x = 9 ** 9 ** 9 ** 9", "x = 'a' * 10 ** 12", "def f(): return f()\nf()", "while True:\n    pass"),
    *("x = [x for x in x]", "class A(A): pass", "f = lambda: f()\nf()", "x = {**x}", "a = b = a"),
    *("def f(*a, **k): return f(*a, **k)\nf(1, b=2)", "x = []\nx.append(x)", "def f(x=f): pass", "x = -'a'"),
)


@pytest.mark.parametrize("code", ODD)
def test_odd_code_ends(code: str, place: Path) -> None:
    assert get(read(f"{code}\n{HEAD}{ENCODE}{ARGS}{TRAIN}", place), "task.source") == "{document}"


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("train.py", "print('hello')", ("'has no Trainer", "TrainingArguments or Trainer", "Name the script")),
        ("train.py", "def f(:\n", ("line 1", "read as Python 3", "Correct the line")),
        ("train.sh", "echo hello", ("has no Trainer", "TrainingArguments or Trainer", "Name the script")),
        ("train.ipynb", "[]", ("is not a notebook", "JSON with cells", "Save it again")),
        ("args.json", "{", ("args.json", "JSON or YAML", "Correct the file")),
        ("args.yaml", "model: {name: x}", ("no argument of the Trainer", "HfArgumentParser", "seqfit validate")),
        ("training_args.bin", "x", ("training_args.bin", "eading a pickle runs code", "to_json_string")),
    ],
)
def test_what_cannot_be_converted_says_why(name: str, text: str, parts: tuple[str, ...], place: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        read(text, place, name)
    for part in parts:
        assert part.lstrip("'") in str(caught.value)
    assert caught.value.rule
    assert caught.value.change
    assert caught.value.exit_code == 2


def test_a_causal_model_is_refused_by_name(place: Path) -> None:
    code = (HEAD + ARGS + TRAIN).replace("AutoModelForSeq2SeqLM", "LlamaForCausalLM")
    with pytest.raises(RecipeError, match="trains a LlamaForCausalLM"):
        read(code, place)


def test_the_file_says_what_is_missing_and_is_never_overwritten(place: Path) -> None:
    conversion = read(HEAD + ARGS + TRAIN, place)
    file = place / "mine.yaml"
    write_conversion(conversion, file)
    assert "# missing: task.source: needed" in file.read_text()
    with pytest.raises(RecipeError, match="never overwritten"):
        write_conversion(conversion, file)


def test_a_metric_that_seqfit_lacks_does_not_spoil_the_recipe(place: Path) -> None:
    code = (
        'import evaluate\nmetric = evaluate.load("meteor")\n'
        'args = Seq2SeqTrainingArguments("out", metric_for_best_model="meteor")\n'
    )
    conversion = read(HEAD + ENCODE + code + TRAIN, place)
    load_checked_recipe(conversion.recipe)
    assert "the metric meteor" in listed(conversion)
    assert "eval.best=meteor" in listed(conversion)


def test_methods_are_followed_from_the_one_that_calls_the_others(place: Path) -> None:
    """And a method called ..._tokenizer is not a tokenizer."""
    (place / "loading.py").write_text(
        "from transformers import *\nclass Loader:\n    def load_model_and_tokenizer(self, name):\n"
        "        model = AutoModelForSeq2SeqLM.from_pretrained(name)\n"
        "        return model, AutoTokenizer.from_pretrained(name)\n"
    )
    code = """
from loading import Loader
class Run:
    def load(self, name, data):
        self.model, self.tokenizer = Loader().load_model_and_tokenizer(name)
        self.data = load_dataset(data)
    def encode(self, example):
        example["input_ids"] = self.tokenizer(example["a"], max_length=9, truncation=True).input_ids
        example["labels"] = self.tokenizer(example["b"], max_length=5, truncation=True).input_ids
        return example
    def arguments(self, rate):
        self.args = Seq2SeqTrainingArguments("out", learning_rate=rate)
    def train(self):
        Seq2SeqTrainer(model=self.model, args=self.args, train_dataset=self.data.map(self.encode)["train"]).train()
    def run(self):
        self.load("t5-base", "./rows")
        self.arguments(rate=1e-3)
        self.train()
"""
    conversion = read(code, place)
    recipe = load_checked_recipe(conversion.recipe)
    assert (recipe.model.name, recipe.train.learning_rate, recipe.sources[0].path) == ("t5-base", 1e-3, "./rows")
    assert next(one.place for one in conversion.taken if "from_pretrained" in one.said) == "loading.py, line 4"
    assert (recipe.task.source, recipe.task.target, recipe.task.max_target_tokens) == ("{a}", "{b}", 5)


def test_files_that_the_script_reads_line_by_line(place: Path) -> None:
    code = """
import json, os
from datasets import Dataset
def rows(path):
    found = []
    with open(path) as file:
        for line in file:
            found.append(json.loads(line))
    return Dataset.from_list(found)
data = {"train": rows(os.path.join("sets", "train.jsonl")), "validation": rows("sets/dev.jsonl")}
train = data["train"].map(encode, batched=True)
args = Seq2SeqTrainingArguments("out")
Seq2SeqTrainer(model=model, args=args, train_dataset=train, eval_dataset=data["validation"].map(encode)).train()
"""
    head = HEAD.replace('data = load_dataset("xsum")', "")
    conversion = read(head + ENCODE.replace("data = data.map(encode, batched=True)", "") + code, place)
    assert conversion.recipe["data"] == {"path": "sets", "splits": {"train": "train.jsonl", "validation": "dev.jsonl"}}


def test_a_classifiers_labels_are_asked_for_where_the_script_does_not_name_them(place: Path) -> None:
    code = """
from datasets import load_dataset
from transformers import AutoTokenizer, AutoModelForSequenceClassification, Trainer, TrainingArguments
data = load_dataset("batubayk/news")
ids = {label: number for number, label in enumerate(set(data["train"]["topic"]))}
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=len(ids))
def number(rows):
    rows["labels"] = [ids[label] for label in rows["topic"]]
    return rows
data = data.map(number, batched=True).map(lambda rows: tokenizer(rows["content"], truncation=True, max_length=99))
Trainer(model=model, args=TrainingArguments("out"), train_dataset=data["train"]).train()
"""
    conversion = read(code, place)
    assert get(conversion, "task.target") == "{topic}"
    assert [one.partition(":")[0] for one in conversion.missing] == ["task.labels"]
    assert "{topic} is changed by ids" in listed(conversion)


def test_rows_that_the_script_reshapes_are_listed(place: Path) -> None:
    code = """
import pandas as pd
frame = pd.read_csv("wide.csv").melt(id_vars=["document"])
data = {"train": Dataset.from_pandas(frame).map(encode), "validation": None}
"""
    encode = ENCODE.replace("data = data.map(encode, batched=True)", "")
    conversion = read(HEAD.replace('data = load_dataset("xsum")', "") + encode + code + ARGS + TRAIN, place)
    assert get(conversion, "data.path") == "wide.csv"
    assert "how its rows are made is not followed" in listed(conversion)


def test_what_a_trainer_of_the_scripts_own_replaces_is_listed(place: Path) -> None:
    code = """
class Weighted(Seq2SeqTrainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return 2 * super().compute_loss(model, inputs)
args = Seq2SeqTrainingArguments("out", learning_rate=1e-4)
"""
    conversion = read(HEAD + ENCODE + code + TRAIN.replace("Seq2SeqTrainer(", "Weighted("), place)
    assert "Weighted.compute_loss(): it replaces a part of the Trainer" in listed(conversion)
    assert get(conversion, "train.learning_rate") == 1e-4


def test_rows_that_are_limited_before_they_are_split(place: Path) -> None:
    head = HEAD.replace(
        'load_dataset("xsum")', 'load_dataset("xsum", split="train[:5000]").train_test_split(test_size=0.1)'
    )
    conversion = read(head + ENCODE + ARGS + TRAIN.replace('data["validation"]', 'data["test"]'), place)
    assert (get(conversion, "data.limit"), get(conversion, "eval.limit")) == ({"train": 4500}, 500)


def test_constants_of_adafactor_that_differ_are_listed(place: Path) -> None:
    code = """
optimizer = Adafactor(model.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
args = Seq2SeqTrainingArguments("out")
"""
    train = TRAIN.replace("args=args", "args=args, optimizers=(optimizer, AdafactorSchedule(optimizer))")
    conversion = read(HEAD + ENCODE + code + train, place)
    assert get(conversion, "train.optimizer.relative_step") is True
    assert "Adafactor(warmup_init)" in listed(conversion)
    assert "Adafactor(scale_parameter)" not in listed(conversion)


def test_adapters_that_are_not_loras_are_listed(place: Path) -> None:
    prefix = 'model = get_peft_model(model, PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=20))\n'
    assert "get_peft_model(model, PrefixTuningConfig(" in listed(read(HEAD + prefix + ENCODE + ARGS + TRAIN, place))


def test_a_collator_and_rows_from_elsewhere_are_listed(place: Path) -> None:
    text = """
from transformers import *
from mine import PairCollator, read_pairs
tokenizer = AutoTokenizer.from_pretrained("t5-small")
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
rows = read_pairs("physics")
Seq2SeqTrainer(model, Seq2SeqTrainingArguments("out"), PairCollator(tokenizer), rows).train()
"""
    found = listed(read(text, place))
    assert "data_collator: a collator of the script's own" in found
    assert "Trainer(train_dataset): read_pairs() is known only when it runs; set data.path" in found
