from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seqfit.plan.parallel_cost import ALONE
from seqfit.plan.search import Candidate, Question, list_spreads, pareto_front, predict, quick_search, search
from seqfit.plan.target import Target
from seqfit.plan.variants import Variant
from seqfit.plan.workload import assume_workload
from seqfit.recipe.schema import TrainRecipe
from seqfit.strategy.schema import Strategy

Make = Callable[..., Question]
PLAIN = {"recompute": "none", "attention": "auto"}  # each further choice is a second or two of tracing


def make_candidate(seconds: float, size: int) -> Candidate:
    variant = Variant((), "fp32")
    return Candidate(variant, variant.strategy, ALONE, size, seconds, 1.0, 100)


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    candidates = [make_candidate(1, 90), make_candidate(2, 95), make_candidate(3, 40), make_candidate(4, 40)]
    front = pareto_front(candidates)
    assert [(item.step_seconds, item.total_bytes) for item in front] == [(1, 90), (3, 40)]


def test_where_all_fits_the_plainest_is_chosen_and_verified(make_question: Make) -> None:
    plan = search(make_question(fixed={"attention": "auto", "precision": "bf16"}))
    assert plan.chosen is not None
    assert plan.memory is not None
    assert plan.chosen.fits
    assert plan.chosen.strategy.recompute == "none"
    assert plan.memory.total_bytes == plan.chosen.total_bytes
    labels = {candidate.variant.label for candidate in plan.best_of_each}
    assert labels == {"bf16", "bf16, recompute every other block", "bf16, recompute every block"}


def test_a_card_that_is_too_small_for_the_plain_way_gets_recompute(make_question: Make, card: Target) -> None:
    question = make_question(
        workload=assume_workload(64, 128, 16),
        fixed={"micro_batch_tokens": 100_000, "precision": "bf16", "attention": "auto"},
    )
    plain = search(question).best_of_each
    sizes = {candidate.variant.label: candidate.total_bytes for candidate in plain}
    between = (sizes["bf16"] + sizes["bf16, recompute every other block"]) // 2
    plan = search(replace(question, target=replace(card, capacity_bytes=between)))
    assert plan.chosen is not None
    assert plan.chosen.strategy.recompute != "none"
    assert not next(item for item in plan.best_of_each if item.variant.label == "bf16").fits


def test_nothing_fits_a_card_without_room(make_question: Make, card: Target) -> None:
    question = make_question(target=replace(card, capacity_bytes=2**20), fixed={**PLAIN, "precision": "fp32"})
    plan = search(question)
    assert plan.chosen is None
    assert not any(candidate.fits for candidate in plan.best_of_each)
    assert quick_search(question) is None


def test_lossy_ways_are_tried_only_where_they_are_allowed(make_question: Make) -> None:
    strict = search(make_question(allow=(), fixed=PLAIN))
    assert {candidate.variant.precision for candidate in strict.best_of_each} == {"fp32"}
    assert "bf16" in {refusal.what for refusal in strict.refusals}
    free = search(make_question(allow=("bf16", "lora"), fixed={**PLAIN, "precision": "bf16"}))
    assert any(candidate.strategy.lora_rank == 16 for candidate in free.best_of_each)


def test_smaller_micro_batches_take_less_memory_and_more_time(make_question: Make) -> None:
    question = make_question(workload=assume_workload(64, 128, 16))
    small, _, small_seconds = predict(question, Strategy(micro_batch_tokens=512), "fp32")
    large, _, large_seconds = predict(question, Strategy(micro_batch_tokens=16_384), "fp32")
    assert small.allocated_bytes < large.allocated_bytes
    assert small_seconds > large_seconds


@pytest.mark.parametrize("batching", ["ragged", "padded"])
def test_more_examples_take_more_memory(make_question: Make, batching: Any) -> None:
    sizes = [
        predict(make_question(workload=assume_workload(count, 64, 8)), Strategy(batching=batching), "fp32")[0]
        for count in (8, 16)
    ]
    assert sizes[0].parts["activations"] < sizes[1].parts["activations"]


def test_updates_in_backward_are_tried_without_clipping(make_question: Make) -> None:
    plan = search(make_question(train=TrainRecipe(clip_norm=None), fixed={**PLAIN, "precision": "fp32"}))
    sizes = {candidate.variant.label: candidate.total_bytes for candidate in plan.best_of_each}
    assert sizes["fp32, update in backward"] < sizes["fp32"]


def test_two_cards_are_compared_in_every_way() -> None:
    assert {spread.way for spread in list_spreads(2)} == {"", "ddp", "fsdp", "pipeline", "dataparallel", "offload"}
    assert {spread.way for spread in list_spreads(1)} == {"", "offload"}
