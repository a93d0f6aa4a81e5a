from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe.overrides import (
    OverrideKey,
    annotation_at,
    apply_overrides,
    names_at,
    overridden_paths,
    union_members,
)
from seqfit.recipe.schema import EarlyStopping, OptimizerRecipe, SourceRecipe


def apply(values: dict[str, Any], *overrides: str) -> dict[str, Any]:
    changed, mistakes = apply_overrides(values, overrides)
    assert mistakes == []
    return changed


def complaint(values: dict[str, Any], override: str) -> str:
    changed, mistakes = apply_overrides(values, [override])
    assert changed == values
    assert len(mistakes) == 1
    return mistakes[0]


def test_the_given_values_stay_as_they_are() -> None:
    values = {"train": {"steps": 1}}
    assert apply(values, "train.steps=2") == {"train": {"steps": 2}}
    assert values == {"train": {"steps": 1}}


def test_sections_that_are_absent_or_null_are_made() -> None:
    assert apply({"eval": None}, "eval.early_stopping.patience=2", "train.steps=5") == {
        "eval": {"early_stopping": {"patience": 2}},
        "train": {"steps": 5},
    }


def test_a_later_override_wins() -> None:
    assert apply({}, "seed=1", "seed=2") == {"seed": 2}


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("train.learning_rate=3e-4", 3e-4),
        ("allow=[]", []),
        ("task.labels=[yes, no]", ["yes", "no"]),
        ("task.labels={good: ['1']}", {"good": ["1"]}),
        ("train.clip_norm=null", None),
        ("strategy.precision=bf16", "bf16"),
        ("strategy.micro_batch_tokens=512", 512),
        ("train.steps=many", "many"),
    ],
)
def test_values_are_read_as_yaml(override: str, value: object) -> None:
    changed: Any = apply({}, override)
    for key in override.partition("=")[0].split("."):
        changed = changed[key]
    assert changed == value


@pytest.mark.parametrize(
    "text",
    [
        "summarize: ",
        "question: {question} context: {context}",
        "{question}",
        "[[ {a}]] b",
        r"a \n b",
        "a #b",
        " x ",
        "2024",
        "a=b",
        "true",
    ],
)
@pytest.mark.parametrize("field", ["prefix", "source"])
def test_text_fields_take_text_as_it_is(field: str, text: str) -> None:
    assert apply({}, f"task.{field}={text}") == {"task": {field: text}}


def test_quoted_text_loses_its_quotes() -> None:
    assert apply({}, "task.prefix='ask: '") == {"task": {"prefix": "ask: "}}


def test_a_text_field_with_alternatives_takes_a_list() -> None:
    assert apply({}, "task.source=['{a}', '{b}']") == {"task": {"source": ["{a}", "{b}"]}}


def test_items_of_a_list_are_reached_by_number() -> None:
    values = {"data": [{"path": "a"}, {"path": "b"}]}
    assert apply(values, "data.1.path=c", "data.0.weight=2") == {"data": [{"path": "a", "weight": 2}, {"path": "c"}]}
    assert apply(values, "~data.0") == {"data": [{"path": "b"}]}


def test_a_label_that_is_a_number_is_a_name() -> None:
    assert apply({"task": {"labels": {"1": ["x"]}}}, "task.labels.1=[y]") == {"task": {"labels": {"1": ["y"]}}}


def test_a_key_is_removed_and_one_that_is_absent_may_be() -> None:
    assert apply({"eval": {"limit": 3, "beams": 2}}, "~eval.limit", "~eval.best", "~train.schedule.floor") == {
        "eval": {"beams": 2}
    }


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("~eval.early_stoping", "Did you mean 'early_stopping'?"),
        ("~evl.limit", "Did you mean 'eval'?"),
        ("~seed.x", "'seed' has no fields"),
        ("steps", "field=value"),
        ("=3", "field=value"),
        ("data.0.path=x", "data is not a list here"),
        ("task.name.first=x", "task.name is 'qa'"),
        ("model.3=x", "model is not a list here"),
    ],
)
def test_what_cannot_be_applied_says_why(override: str, words: str) -> None:
    assert words in complaint({"data": {"path": "a"}, "task": {"name": "qa"}, "model": {"name": "m"}}, override)


@pytest.mark.parametrize("override", ["data.2.path=x", "data.path=x", "~data.7"])
def test_an_item_that_is_not_there_says_how_many_there_are(override: str) -> None:
    assert "data is a list of 2" in complaint({"data": [{"path": "a"}, {"path": "b"}]}, override)


def test_the_paths_that_are_set_are_known() -> None:
    assert overridden_paths(["train.steps=3", "~seed", "task.prefix=a=b"]) == ["train.steps", "task.prefix"]


@pytest.mark.parametrize(
    ("path", "members"),
    [
        (["train", "optimizer"], [OptimizerRecipe]),
        (["eval", "early_stopping"], [EarlyStopping]),
        (["data"], [SourceRecipe, list[SourceRecipe]]),
        (["data", 0], [SourceRecipe]),
        (["data", "0", "path"], [str]),
        (["data", "path"], [str]),
        (["task", "labels", "World", 1], [str]),
        (["task", "labels", "1"], [list[str]]),
        (["task", "labels", 1], [str]),
        (["strategy", "precision"], [Any]),
        (["train", "epochs"], [float]),
    ],
)
def test_a_path_leads_to_its_types(path: list[OverrideKey], members: list[Any]) -> None:
    assert union_members(annotation_at(path)) == members


@pytest.mark.parametrize("path", [["trane"], ["train", "x"], ["seed", "x"], ["data", "0", "pth"]])
def test_an_unknown_path_leads_to_nothing(path: list[OverrideKey]) -> None:
    assert annotation_at(path) is None


def test_names_are_fields_or_the_allowed_keys() -> None:
    assert names_at(["eval", "early_stopping"]) == ["patience", "min_delta"]
    assert names_at(["data", "splits"]) == ["train", "validation", "test"]
    assert names_at(["task", "labels"]) == []
