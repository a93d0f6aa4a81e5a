from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.recipe.overrides import join_path
from seqfit.validation import find_mistakes, load_checked_recipe

TASK: dict[str, Any] = {"name": "qa", "source": "{q}", "target": "{a}"}
GOOD: dict[str, Any] = {"model": {"name": "m"}, "task": TASK, "data": {"path": "d"}}


def refused_fields(values: dict[str, Any], *overrides: str) -> list[str]:
    """The field of every line, in order."""
    with pytest.raises(RecipeError) as caught:
        load_checked_recipe(values, overrides)
    return [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]


def test_a_good_recipe_is_loaded() -> None:
    assert load_checked_recipe(GOOD, ["seed=3"]).seed == 3
    assert find_mistakes(GOOD) == []


def test_mistakes_of_all_packages_are_reported_together() -> None:
    wrong = GOOD | {"sede": 1, "task": TASK | {"source": "{q"}, "strategy": "magic", "eval": {"metrics": ["bleurt"]}}
    assert refused_fields(wrong) == ["sede", "task.source", "eval.metrics", "strategy"]


def test_a_misspelt_strategy_field_does_not_hide_the_allow_list() -> None:
    wrong = GOOD | {"strategy": {"precison": "fp32"}, "allow": ["int8", "int4"]}
    assert refused_fields(wrong) == ["strategy.precison", "allow", "allow"]
    assert refused_fields(GOOD | {"strategy": {"precision": "fp16"}, "allow": ["int8"]}) == ["allow", "allow"]


def test_an_unknown_field_does_not_hide_what_its_part_gets_wrong() -> None:
    train = {"batch_examples": 1, "batch_tokens": 1, "stps": 1}
    assert refused_fields(GOOD | {"train": train}) == ["train.stps", "train"]
    assert refused_fields(GOOD | {"model": {"name": "m", "kind": "classifier"}, "sede": 1}) == [
        "sede",
        "model.kind is classifier but task.name is qa; only classify, regression, multilabel are trained with a head. "
        "Set model.kind=text-to-text, with a model that generates text, such as model.name=google/flan-t5-small.",
    ]


def test_templates_are_checked_where_the_task_has_other_mistakes() -> None:
    task = {"name": "qua", "source": ["{q", "{}"], "target": 5, "references": ["]]"]}
    assert refused_fields(GOOD | {"task": task}) == [
        "task.name",
        "task.target",
        "task.source",
        "task.source",
        "task.references",
    ]


def test_mistakes_of_classes_are_reported_once() -> None:
    classify = TASK | {"name": "classify", "references": ["{x}"]}
    assert refused_fields(GOOD | {"task": classify}) == ["task.labels", "task.references"]
    labels = {"x": ["a"], "y": ["A", "X"]}
    assert refused_fields(GOOD | {"task": classify | {"labels": labels}}) == [
        "task.references",
        "task.labels",
        "task.labels",
    ]


@pytest.mark.parametrize("best", ["bleu", "f2"])
def test_the_best_score_is_one_of_the_stated_metrics(best: str) -> None:
    assert refused_fields(GOOD, f"eval.best={best}") == ["eval.best"]
    assert load_checked_recipe(GOOD, ["eval.best=bleu", "eval.metrics=[bleu]"]).eval.best == "bleu"
    assert load_checked_recipe(GOOD, ["eval.best=loss"]).eval.best == "loss"


def test_what_the_schema_refuses_is_not_reported_twice() -> None:
    odd: dict[str, Any] = {"task": 5, "eval": {"metrics": 3, "best": 4}, "strategy": 5, "allow": "bf16"}
    assert find_mistakes(odd) == []
    assert find_mistakes({"task": {"name": "qa"}, "eval": []}) == []


def test_a_strategy_that_conflicts_with_train_is_reported_with_the_rest() -> None:
    wrong = GOOD | {"strategy": "in_backward", "sede": 1}
    assert refused_fields(wrong) == ["sede", "strategy.optimizer_in_backward"]
    assert refused_fields(wrong | {"train": {"clip_norm": 0}}) == ["train.clip_norm", "sede"]
    assert load_checked_recipe(GOOD, ["strategy=in_backward", "train.clip_norm=null"]).train.clip_norm is None


def test_an_inherited_mistake_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "model: {name: m}\ntask: {name: qa, source: '{q', target: '{a}'}\ndata: {path: d}\n"
    )
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\nallow: [int8]\n")
    with pytest.raises(RecipeError) as caught:
        load_checked_recipe(tmp_path / "mine.yaml")
    _, template, allow = str(caught.value).splitlines()
    assert template.endswith("base.yaml)")
    assert not allow.endswith(")")


def test_fields_are_named_by_their_path() -> None:
    found = find_mistakes({"task": {"source": "{"}, "eval": {"metrics": ["x"]}, "strategy": {"threads": 0}})
    assert [join_path(path) for path, _ in found] == ["task.source", "eval.metrics", "strategy.threads"]


def test_checking_needs_no_torch() -> None:
    program = "import sys, seqfit.validation; assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_trimmed_vocabulary_must_be_allowed() -> None:
    trimmed = GOOD | {"model": {"name": "m", "trim_vocabulary": "data"}}
    with pytest.raises(RecipeError, match=r"allows \['bf16'\].*changes the loss.*'allow=\[bf16, trim\]'"):
        load_checked_recipe(trimmed)
    assert refused_fields(trimmed, "allow=[]") == ["model.trim_vocabulary"]
    assert load_checked_recipe(trimmed, ["allow=[trim]"]).model.trim_vocabulary == "data"
    assert load_checked_recipe(trimmed, ["allow=[trim]", "model.trim_vocabulary=500"]).model.trim_vocabulary == 500
