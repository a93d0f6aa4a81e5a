"""What a plan proposes, training accepts: every way it lists goes through the checks that a run begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.hardware.cards import find_card
from seqfit.model.load import load_model
from seqfit.parallel.pipeline import check_can_split
from seqfit.planning.candidates import Variant
from seqfit.planning.cluster import LayoutCost
from seqfit.planning.report import PlannedStrategy
from seqfit.planning.request import Assumed, build_request, make_plan, summarise_plan
from seqfit.planning.search import PlanRequest, search, trace_variant
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import card_target
from seqfit.recipe.schema import Recipe
from seqfit.strategy.conflicts import check_processes
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import LOSSY
from seqfit.validation import load_checked_recipe

SHORT = Assumed(source_tokens=32, target_tokens=8, without_data=True)
TRAINS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "not clipped": {"clip_norm": None},
    "not clipped, skips": {"clip_norm": None, "when_not_finite": "skip"},
    "made again in fp32": {"when_not_finite": "higher-precision-retry"},
    "Adafactor, not clipped": {"optimizer": {"name": "adafactor"}, "clip_norm": None},
}
ALLOWED: list[tuple[str, list[str]]] = [("rtx3090", ["bf16"]), ("rtx3090", list(LOSSY)), ("t4", list(LOSSY))]


@pytest.fixture(scope="module", autouse=True)
def _traced_once() -> Iterator[None]:
    """One trace stands for all variants: what is listed does not depend on its figures."""
    known: list[StepModel] = []

    def trace(question: PlanRequest, variant: Variant) -> StepModel:
        if not known:
            known.append(trace_variant(question, variant))
        return known[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqfit.planning.search.trace_variant", trace)
        yield


@pytest.fixture
def make_recipe(tiny_model: Callable[[str], Path]) -> Callable[..., Recipe]:
    def make(**fields: Any) -> Recipe:
        values = {
            "model": {"path": str(tiny_model("t5"))},
            "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
            "data": {"path": "rows.jsonl"},
        }
        return load_checked_recipe({**values, **fields})

    return make


def list_ways(recipe: Recipe, card: str) -> list[tuple[PlannedStrategy, LayoutCost]]:
    """Those of two cards on which nothing fits, so that none is left out since another is better."""
    question = build_request(recipe, replace(card_target(find_card(card), 2), capacity_bytes=1), SHORT)
    plan = search(replace(question, fixed={"micro_batch_tokens": 512}))
    ways = summarise_plan(question, plan, None).ways
    return [(way, found.spread) for way, found in zip(ways, plan.best_of_each, strict=True)]


@pytest.mark.parametrize("train", TRAINS.values(), ids=TRAINS)
@pytest.mark.parametrize(("card", "allow"), ALLOWED)
def test_training_accepts_every_way_that_a_plan_for_two_cards_lists(
    card: str, allow: list[str], train: dict[str, Any], make_recipe: Callable[..., Recipe]
) -> None:
    recipe = make_recipe(train=train, allow=allow)
    model = load_model(recipe.model)
    listed = list_ways(recipe, card)
    for way, spread in listed:
        strategy = load_strategy(load_checked_recipe(recipe, way.overrides))
        check_processes(strategy, spread.count)
        assert (strategy.parallel == "auto") == (spread.count == 1), way
        if strategy.parallel == "pipeline":
            check_can_split(model, spread.count)
    assert {"one device", "ddp, 2 GPUs", "pipeline, 2 GPUs"} <= {way.spread for way, _ in listed}


def test_a_plan_for_two_cards_lists_fsdp_where_training_has_it(make_recipe: Callable[..., Recipe]) -> None:
    with_adamw, with_adafactor = (
        {way.spread for way, _ in list_ways(make_recipe(train={"optimizer": {"name": name}}), "rtx3090")}
        for name in ("adamw", "adafactor")
    )
    assert with_adamw - with_adafactor == {"fsdp, 2 GPUs", "fsdp with offload, 2 GPUs"}


def test_offload_on_one_card_is_refused_before_the_data_are_read(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(strategy={"parallel": "fsdp", "offload": True})
    with pytest.raises(RecipeError, match=r"strategy\.offload is on, and one process trains"):
        make_plan(recipe, card_target(find_card("rtx3090"), 1), Assumed())


def test_offload_on_two_cards_is_a_line_of_the_table(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(strategy={"parallel": "fsdp", "offload": True}, allow=[])
    answer = make_plan(recipe, card_target(find_card("rtx3090"), 2), SHORT)
    assert answer.asked is None
    assert any("see the lines of fsdp with offload" in event for event in answer.events)
    assert any("strategy.offload=true" in way.overrides for way in answer.ways)
