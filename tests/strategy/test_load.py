from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.recipe import Recipe
from seqfit.strategy import Strategy, load_strategy
from seqfit.strategy.load import dump_strategy, list_strategies
from seqfit.strategy.schema import LOSSY
from seqfit.yaml_text import read_yaml


def recipe_with(strategy: Any, allow: list[str] | None = None, train: dict[str, Any] | None = None) -> Recipe:
    values = {
        "model": {"name": "t5-small"},
        "task": {"name": "qa", "source": "{q}", "target": "{a}"},
        "data": {"path": "qa.csv"},
        "train": train or {},
        "strategy": strategy,
    }
    return Recipe.model_validate(values if allow is None else {**values, "allow": allow})


def test_no_strategy_is_the_default_one() -> None:
    assert load_strategy(recipe_with(None)) == Strategy()


@pytest.mark.parametrize("name", list_strategies())
def test_every_named_strategy_loads_where_it_is_allowed(name: str) -> None:
    strategy = load_strategy(recipe_with(name, allow=list(LOSSY), train={"clip_norm": None}))
    assert strategy.name == name
    assert strategy != Strategy(name=name)


def test_the_baseline_is_lossless() -> None:
    strategy = load_strategy(recipe_with("baseline", allow=[]))
    assert (strategy.precision, strategy.batching, strategy.lossy) == ("fp32", "padded", [])


def test_fields_start_from_the_strategy_they_name() -> None:
    strategy = load_strategy(recipe_with({"name": "baseline", "threads": 1}))
    assert strategy == Strategy(name="baseline", precision="fp32", batching="padded", threads=1)
    assert load_strategy(recipe_with({"name": "mine", "threads": 1})) == Strategy(name="mine", threads=1)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        RecipeError, match=r"strategy: 'baselin' is given\. The strategies are 8bit, .* Did you mean 'baseline'"
    ):
        load_strategy(recipe_with("baselin"))


@pytest.mark.parametrize("strategy", ["fp16", {"precision": "fp16"}])
def test_a_lossy_strategy_needs_the_recipes_leave(strategy: Any) -> None:
    with pytest.raises(RecipeError, match=r"uses fp16, but the recipe allows \['bf16'\].*allow=\[bf16, fp16\]"):
        load_strategy(recipe_with(strategy))
    assert load_strategy(recipe_with(strategy, allow=["fp16"])).precision == "fp16"


@pytest.mark.parametrize(
    ("strategy", "kind", "way_out"),
    [
        ({"precision": "fp16"}, "fp16", "strategy.precision=fp32"),
        ("adafactor", "adafactor", "strategy.optimizer=recipe"),
        ("8bit", "8bit", "strategy.optimizer=recipe"),
        ("lora", "lora", "remove strategy.lora_rank"),
        ({"freeze": ["encoder"]}, "freeze", "remove strategy.freeze"),
    ],
)
def test_the_suggested_change_fits_the_lossy_kind(strategy: Any, kind: str, way_out: str) -> None:
    with pytest.raises(RecipeError, match=rf"uses {kind}, .*'allow=\[bf16, {kind}\]', or (set )?{way_out}"):
        load_strategy(recipe_with(strategy))


def test_a_strategy_that_disagrees_with_the_recipes_training_is_a_mistake() -> None:
    with pytest.raises(RecipeError, match=r"strategy\.optimizer_in_backward: it is on and train\.clip_norm is 1"):
        load_strategy(recipe_with("in_backward"))
    assert load_strategy(recipe_with("in_backward", train={"clip_norm": None})).optimizer_in_backward


def test_a_strict_recipe_refuses_bf16() -> None:
    with pytest.raises(RecipeError, match=r"uses bf16, but the recipe allows \[\].*'allow=\[bf16\]'"):
        load_strategy(recipe_with("bf16", allow=[]))


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(RecipeError) as caught:
        load_strategy(recipe_with({"precision": "fp8", "micro_batch_tokens": 0, "pad_multipel": 8}))
    first, *mistakes = str(caught.value).splitlines()
    assert first == "The strategy has 3 mistakes:"
    assert len(mistakes) == 3
    for field in ("strategy.precision: ", "strategy.micro_batch_tokens: ", "strategy.pad_multipel: "):
        assert sum(field in line for line in mistakes) == 1
    assert "Did you mean 'pad_multiple'?" in str(caught.value)


def test_a_written_strategy_reads_back_as_itself() -> None:
    strategy = Strategy(name="mine", precision="fp32", micro_batch_examples=4)
    fields, *_ = read_yaml(dump_strategy(strategy))
    assert load_strategy(recipe_with(fields)) == strategy
