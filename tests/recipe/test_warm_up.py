from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.recipe.load import load_recipe, read_recipe, warn_of_warm_up
from seqfit.recipe.schema import TrainRecipe


def write(folder: Path, text: str) -> Path:
    (folder / "mine.yaml").write_text(text, "utf-8")
    return folder / "mine.yaml"


def test_a_warm_up_that_is_inherited_by_a_short_run_is_a_tenth_of_it_and_noted(tmp_path: Path) -> None:
    reading = read_recipe(write(tmp_path, "extends: t5-gsm8k\ntrain: {steps: 15}\n"))
    assert reading.require().train.schedule.warmup_steps == 1
    [note] = reading.notes
    assert "train.schedule.warmup_steps is 1" in note
    assert "the recipe's own 100" in note


def test_so_is_that_of_a_library_recipe() -> None:
    assert load_recipe("demo", ["train.steps=20"]).train.schedule.warmup_steps == 2
    assert load_recipe("demo", ["train.steps=3"]).train.schedule.warmup_steps == 0


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("extends: t5-gsm8k\ntrain: {steps: 15, schedule: {warmup_steps: 60}}\n", []),
        ("extends: t5-gsm8k\ntrain: {steps: 15}\n", ["train.schedule.warmup_steps=60"]),
        ("extends: t5-gsm8k\ntrain: {steps: 15}\n", ["train.schedule={warmup_steps: 60}"]),
    ],
)
def test_what_the_user_states_is_kept(tmp_path: Path, text: str, overrides: list[str]) -> None:
    reading = read_recipe(write(tmp_path, text), overrides)
    assert reading.require().train.schedule.warmup_steps == 60
    assert reading.notes == []


@pytest.mark.parametrize("more", [["train.steps=200"], ["train.steps=1000"], []])
def test_an_inherited_warm_up_that_fits_stays(more: list[str]) -> None:
    reading = read_recipe("t5-gsm8k", more)
    assert reading.require().train.schedule.warmup_steps == 100
    assert reading.notes == []


def test_values_that_the_schema_refuses_are_left_to_it(tmp_path: Path) -> None:
    reading = read_recipe(write(tmp_path, "extends: t5-gsm8k\ntrain: {steps: many, schedule: [1]}\n"))
    assert len(reading.mistakes) == 2


def train(**fields: Any) -> TrainRecipe:
    return TrainRecipe.model_validate({"schedule": {"warmup_steps": 100}} | fields)


def test_a_run_that_ends_in_its_warm_up_is_warned_of_with_the_fix() -> None:
    warning = warn_of_warm_up(train(), 15)
    assert warning is not None
    assert "at 15% of train.learning_rate; set train.schedule.warmup_steps=1" in warning
    assert warn_of_warm_up(train(), 101) is None
    assert warn_of_warm_up(TrainRecipe(), 15) is None


def test_a_rate_that_is_not_used_is_not_warned_of() -> None:
    assert warn_of_warm_up(train(optimizer={"name": "adafactor", "relative_step": True}), 15) is None
