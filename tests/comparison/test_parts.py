from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.comparison.candidates import PartMeaning, UnknownPart, find_meaning, list_candidate_names
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe
from tests.comparison.comparisons import recipe_values

BASE: Recipe = load_recipe(recipe_values())

MEANINGS = {
    "baseline": PartMeaning(()),
    "recompute": PartMeaning(("strategy.recompute=blocks",)),
    "in_backward": PartMeaning(("strategy.optimizer_in_backward=true",)),
    "accumulation": PartMeaning(("strategy.micro_batch_examples=8",)),
    "trimmed": PartMeaning(("model.trim_vocabulary=data",)),
    "packed": PartMeaning(("strategy.batching=packed",)),
    "workers4": PartMeaning(("strategy.prefetch=4",)),
    "ddp2": PartMeaning(("strategy.parallel=ddp",), 2),
    "pipeline4": PartMeaning(("strategy.parallel=pipeline", "strategy.micro_batch_examples=4"), 4),
    "fp16 + recompute": PartMeaning(("strategy.precision=fp16", "strategy.recompute=blocks")),
    "task.prefix=a+b": PartMeaning(("task.prefix=a+b",)),
    "~train.clip_norm": PartMeaning(("~train.clip_norm",)),
    "larger": PartMeaning(("model.name=google-t5/t5-base",)),
}


@pytest.mark.parametrize("part", MEANINGS)
def test_a_part_stands_for_overrides(part: str) -> None:
    assert find_meaning([part], BASE, None) == MEANINGS[part]


def test_all_is_everything_that_classic_has() -> None:
    one_by_one = find_meaning(["fp16", "accumulation", "recompute", "adafactor"], BASE, None)
    assert find_meaning(["all"], BASE, None) == one_by_one
    assert len(one_by_one.overrides) == 4


def test_a_quarter_of_a_batch_is_rounded_up_and_a_batch_of_tokens_is_split_by_tokens() -> None:
    odd = load_recipe(recipe_values(train={"batch_examples": 10}))
    assert find_meaning(["accumulation"], odd, None).overrides == ("strategy.micro_batch_examples=3",)
    tokens = load_recipe(recipe_values(train={"batch_tokens": 4096}))
    assert find_meaning(["accumulation"], tokens, None).overrides == ("strategy.micro_batch_tokens=1024",)


def test_larger_is_what_the_user_says_a_folder_or_a_name(tmp_path: Path) -> None:
    assert find_meaning(["larger"], BASE, "org/model").overrides == ("model.name=org/model",)
    assert find_meaning(["larger"], BASE, str(tmp_path)).overrides == (f"model.path={tmp_path}",)


def test_a_larger_one_of_the_hub_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    in_folder = load_recipe(recipe_values(model={"path": str(tmp_path)}))
    assert find_meaning(["larger"], in_folder, "org/model").overrides == ("model.name=org/model", "~model.path")


WRONG = {
    "recompue": "Did you mean 'recompute'?",
    "ddp": "Write how many, such as ddp2",
    "fsdp1": "two or more processes",
    "fp16+classic": "'classic' is a set, used within a candidate",
}


@pytest.mark.parametrize("part", WRONG)
def test_an_unknown_part_is_refused_with_what_to_write(part: str) -> None:
    with pytest.raises(UnknownPart) as reported:
        find_meaning([part], BASE, None)
    assert WRONG[part] in str(reported.value)


def test_no_larger_model_of_an_unknown_one() -> None:
    unknown = load_recipe(recipe_values(model={"name": "org/own"}))
    with pytest.raises(UnknownPart, match="Name one with --larger"):
        find_meaning(["larger"], unknown, None)


@pytest.mark.parametrize("name", list_candidate_names())
def test_every_name_that_is_offered_has_a_meaning(name: str) -> None:
    assert find_meaning([name], BASE, None).overrides or name == "baseline"
