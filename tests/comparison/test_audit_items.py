"""Tables of published rows, and what is no item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.audit_items import read_items
from seqfit.comparison.audits import UNREAD, AuditItem, Fact
from seqfit.errors import RecipeError
from seqfit.yaml_text import write_yaml

TABLE: dict[str, Any] = {
    "model": "bert-base-uncased",
    "data": {"name": "AG News", "train": 1000, "test": 100},
    "hardware": "not stated",
    "arguments": {"num_train_epochs": 5, "per_device_train_batch_size": 32},
    "by_strategy": {
        "fp16": "true for fp16 and all, else false",
        "gradient_accumulation_steps": "True (1) for grad_accumulation and all, else 4",
        "optim": "adafactor for optim and all, else adamw_torch",
    },
    "rows": [
        {"name": "baseline", "seconds": 174, "gb": 7.0, "accuracy": 79},
        {"name": "fp16", "accuracy": 78, "temperature": 60},
        {"name": "gradient accumulation"},
        {"name": "adafactor"},
        {"name": "all"},
    ],
}


def write_table(folder: Path, values: dict[str, Any]) -> Path:
    (folder / "published.yaml").write_text(write_yaml(values))
    return folder / "published.yaml"


def read(folder: Path, **changes: Any) -> dict[str, AuditItem]:
    return {item.name: item for item in read_items([write_table(folder, {**TABLE, **changes})])}


def test_a_table_has_one_item_for_each_row(tmp_path: Path) -> None:
    items = read(tmp_path)
    facts = {name: item.facts for name, item in items.items()}
    assert {name: fact["accumulation"].value for name, fact in facts.items()} == {
        **dict.fromkeys(("baseline", "fp16", "adafactor"), 4),
        **dict.fromkeys(("gradient accumulation", "all"), 1),
    }
    assert [name for name, fact in facts.items() if fact["precision"].value == "fp16"] == ["fp16", "all"]
    assert [name for name, fact in facts.items() if fact["optimizer"].value == "adafactor"] == ["adafactor", "all"]
    assert items["baseline"].figures == {"seconds": 174.0, "memory_bytes": 7e9}
    assert (items["fp16"].scores, items["fp16"].scored_rows) == ({"accuracy": 78.0}, 100)
    assert "temperature: 60 is not compared" in items["fp16"].notes
    assert "machine" not in facts["baseline"]
    assert items["baseline"].kind == "row"


def test_a_row_without_arguments_is_what_its_name_says(tmp_path: Path) -> None:
    names = (
        "baseline",
        "gradient_accumulation_steps=8",
        "gradient_checkpointing",
        "fp32",
        "model.parallelize()",
        "my fp16",
    )
    rows = [{"name": name} for name in names]
    items = read(tmp_path, by_strategy={}, rows=rows, hardware="2x RTX 3090", arguments={"bf16": True})
    assert items["gradient_accumulation_steps=8"].facts["accumulation"].value == 8
    assert items["gradient_checkpointing"].facts["checkpointing"].value == "every block"
    assert (items["baseline"].facts["precision"].value, items["fp32"].facts["precision"].value) == ("bf16", "fp32")
    assert items["baseline"].facts["gpus"].value == 2
    assert "naive" in items["model.parallelize()"].facts["layout"].text
    assert "precision" not in items["my fp16"].facts  # it is named after what no argument states
    assert "taken to be what its name says" in items["my fp16"].notes[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [{"seconds": 3}]}, "Give each row a name"),
        ({"rows": 3}, "Give each row a name"),
        ({"memory": "both"}, "memory is 'both'"),
        ({"by_strategy": {"fp16": "sometimes"}}, "by_strategy.fp16 is 'sometimes'"),
        ({"by_strategy": {"fp16": "true for cats"}}, "by_strategy.fp16 names 'cats'"),
        ({"data": {"train": "many"}}, "data.train of 'baseline' is 'many'"),
        ({"gpus": "two"}, "gpus of 'baseline' is 'two'"),
        ({"arguments": {}, "by_strategy": {}}, "'baseline' has no arguments"),
    ],
)
def test_a_table_with_a_mistake(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        read(tmp_path, **changes)
    assert caught.value.rule
    assert caught.value.change


def test_scripts_and_recipes_of_a_table_are_next_to_it(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"learning_rate": 1e-4, "max_steps": 70}')
    (tmp_path / "mine.yaml").write_text("extends: demo\ntrain: {steps: 60, schedule: {warmup_steps: 6}}\n")
    rows: list[dict[str, Any]] = [
        {"name": "theirs", "script": "args.json", "seconds": 3},
        {"name": "ours", "recipe": "mine.yaml", "overrides": ["train.learning_rate=1e-3"]},
    ]
    items = {item.name: item for item in read_items([write_table(tmp_path, {"rows": rows})])}
    assert {name: item.facts["updates"].value for name, item in items.items()} == {"theirs": 70, "ours": 60}
    assert items["ours"].facts["learning_rate"].value == 1e-3
    assert items["theirs"].figures == {"seconds": 3.0}


def test_a_misspelt_argument_is_listed() -> None:
    rows = [{"name": "a", "arguments": {"leaning_rate": 1e-4, "seed": 3}}]
    note = "leaning_rate is not an argument of the Trainer, and is not compared. Did you mean 'learning_rate'?"
    assert note in read_items(rows)[0].notes


@pytest.mark.parametrize(
    ("name", "value", "aspect"),
    [
        ("per_device_train_batch_size", "auto", "rows_per_update"),
        ("gradient_accumulation_steps", 0, "updates"),
        ("num_train_epochs", "five", "passes"),
        ("learning_rate", [1], "learning_rate"),
        ("warmup_steps", "many", "schedule"),
        ("eval_steps", "often", "evaluations"),
    ],
)
def test_a_value_that_no_trainer_computes_with_is_no_default(name: str, value: object, aspect: str) -> None:
    items = read_items([{"name": "a", "arguments": {"seed": 3, name: value}}, {"name": "b", "arguments": {"seed": 3}}])
    assert items[0].facts[aspect] == Fact([f"{name}={value}"], f"{name}={value}", UNREAD)
    assert items[1].facts[aspect].place != UNREAD


def test_what_is_no_item(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "rows.json").write_text('[{"a": 1}]')
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.yaml").write_text("a: [1\n")
    for name, message in (
        ("rows.csv", "is a data file"),
        ("rows.json", "has no names with values"),
        ("empty", "is a folder without runs"),
        ("broken.yaml", "can't be read"),
        ("missing.yaml", "There is no"),
    ):
        with pytest.raises(RecipeError, match=message):
            read_items([str(tmp_path / name)])


def test_argument_files_and_command_lines(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"gradient_accumulation_steps": true, "learning_rate": 1e-4}')
    (tmp_path / "args.yaml").write_text("gradient_accumulation_steps: 4\nmax_steps: 70\n")
    command = "python run_summarization.py --model_name_or_path t5-small --max_steps 70 --fp16"
    items = read_items([str(tmp_path / "args.json"), str(tmp_path / "args.yaml"), command])
    assert [item.facts["accumulation"].value for item in items] == [1, 4, 1]
    assert [item.facts["updates"].value for item in items[1:]] == [70, 70]
    assert [item.name for item in items[:2]] == ["args.json", "args.yaml"]
    assert items[2].facts["model"].text == "t5-small"
