from __future__ import annotations

import copy
from typing import Any

import pytest

from seqfit.recipe.mistakes import Mistake, report_mistakes, validate_part
from seqfit.recipe.schema import OptimizerRecipe, Recipe

GOOD: dict[str, Any] = {
    "model": {"name": "m"},
    "task": {"name": "qa", "source": "{q}", "target": "{a}"},
    "data": {"path": "d"},
}


def mistakes_of(section: str, value: Any) -> list[str]:
    recipe, mistakes = validate_part(Recipe, copy.deepcopy(GOOD) | {section: value})
    assert recipe is None
    return list(map(str, mistakes))


@pytest.mark.parametrize(
    ("section", "value", "sentence"),
    [
        ("train", {"learning_rat": 1}, "train.learning_rat: unknown field. Did you mean 'learning_rate'?"),
        ("eval", {"xyz": 1}, "eval.xyz: unknown field. Known here: metrics, best,"),
        ("task", {"name": "qa", "source": "s"}, "task.target: needed, but not given. Template of the target text"),
        (
            "task",
            GOOD["task"] | {"name": "qua"},
            "task.name: 'qua' is none of qa, summarize, translate, classify, math, generate,",
        ),
        ("train", {"learning_rate": -1}, "train.learning_rate: -1 is given; this must be greater than 0. Peak"),
        ("train", {"steps": "ten"}, "train.steps: 'ten' is given; this must be a valid integer. Optimizer steps"),
        (
            "train",
            {"optimizer": "adam"},
            "train.optimizer: 'adam' is given; this must be a mapping with fields such as",
        ),
        ("model", {"name": 5}, "model.name: 5 is not text. Write it in quotes: '5'."),
        ("model", {}, ": neither name nor path is given; set model.name"),
        ("task", GOOD["task"] | {"source": 5}, "task.source: 5 is given; this must be text or a list."),
        ("task", GOOD["task"] | {"source": ["{a}", 5]}, "task.source.1: 5 is not text. Write it in quotes: '5'."),
        ("task", GOOD["task"] | {"labels": {"a": [1]}}, "task.labels.a.0: 1 is not text. Write it in quotes: '1'."),
        ("task", GOOD["task"] | {"labels": "a"}, "task.labels: 'a' is given; this must be a list or a mapping."),
        ("data", {"path": "d", "limt": 3}, "data.limt: unknown field. Did you mean 'limit'?"),
        ("data", [{"path": "d"}, {"pth": "e"}], "data.1.pth: unknown field. Did you mean 'path'?"),
        ("data", {"path": "d", "splits": {"trian": "x"}}, "data.splits.trian: unknown field. Did you mean 'train'?"),
        ("data", 5, "data: 5 is given; this must be a mapping or a list. Where rows come from"),
        ("data", {"label": "x"}, "data: neither hub nor path is given; set data.path"),
        ("data", [], ": data is an empty list; give at least one source."),
        (
            "data",
            {"path": "d", "holdout": {"validation": 0.6, "test": 0.6}},
            "data.holdout: the fractions sum to 1.2, which leaves nothing to train on; they must sum to less than 1.",
        ),
        ("data", [{"path": "d", "balance": "x"}], "data.0.balance: balance is 'x' without a limit, and only limited"),
        ("data", [{"path": "d"}, {"path": "e/d"}], "data: two sources are both called ['d', 'd']; give each"),
        ("strategy", 5, "strategy: 5 is given; this must be text or a mapping. How to compute"),
        ("seed", None, "seed: null is given; this must be a valid integer. Seed of"),
    ],
)
def test_a_mistake_is_one_sentence_in_our_words(section: str, value: Any, sentence: str) -> None:
    found = mistakes_of(section, value)
    assert len(found) == 1
    assert sentence in found[0]


def test_every_mistake_is_reported_once() -> None:
    found = mistakes_of("data", {"hub": 1, "holdout": 5, "limt": 3, "format": "cvs"})
    assert [line.split(":")[0] for line in found] == ["data.hub", "data.format", "data.holdout", "data.limt"]


def test_a_wrong_limit_is_not_taken_for_none() -> None:
    found = mistakes_of("data", {"path": "d", "balance": "x", "limit": {"train": 0}})
    assert [line.split(":")[0] for line in found] == ["data.limit.train"]


def test_a_report_counts_its_lines() -> None:
    lines = [Mistake(("train", "steps"), "wrong."), Mistake((), "All of it.")]
    assert report_mistakes("mine.yaml", lines) == "mine.yaml has 2 mistakes:\n  train.steps: wrong.\n  All of it."


def test_a_long_value_is_shortened() -> None:
    assert "..." in mistakes_of("seed", "x" * 500)[0]
    assert len(mistakes_of("seed", "x" * 500)[0]) < 200


def test_another_part_is_explained_the_same_way() -> None:
    part, mistakes = validate_part(OptimizerRecipe, {"nam": "adamw"}, within=("optimizer",))
    assert part is None
    assert list(map(str, mistakes)) == ["optimizer.nam: unknown field. Did you mean 'name'?"]
