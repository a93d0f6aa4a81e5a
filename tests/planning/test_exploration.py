"""What a search looks at once, against what it would find in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seqfit.hardware.cards import find_card
from seqfit.planning.placement import PlanCandidate, PlanRequest
from seqfit.planning.search import search
from seqfit.planning.shape import assume_workload
from seqfit.planning.target import Target, card_target

Make = Callable[..., PlanRequest]
FIXED = {"recompute": "none", "attention": "auto", "precision": "bf16", "micro_batch_tokens": 1152}


@pytest.fixture
def request_of(make_request: Make) -> Make:
    def make(*allow: str) -> PlanRequest:
        return make_request(allow=("bf16", *allow), fixed=FIXED, workload=assume_workload(32, 64, 8))

    return make


def test_what_is_not_allowed_is_predicted_as_if_it_were(request_of: Make) -> None:
    kinds = ("adafactor", "8bit", "lora")
    quick = {one.variant.label: one for one in search(request_of(), what_ifs=True).what_ifs}
    full = {one.variant.label: one for one in search(request_of(*kinds)).best_of_each}
    assert {one.variant.needs for one in quick.values()} == {*kinds}
    for label, one in quick.items():
        assert one.total_bytes == pytest.approx(full[label].total_bytes, rel=0.01)
        assert one.step_seconds == pytest.approx(full[label].step_seconds, rel=0.01)


def test_what_is_allowed_is_no_what_if(request_of: Make) -> None:
    plan = search(request_of("lora", "adafactor", "8bit"), what_ifs=True)
    assert plan.what_ifs == []


def test_a_trimmed_vocabulary_and_truncation_are_shown_where_they_matter(make_request: Make) -> None:
    workload = assume_workload(2, 520, 8)
    plan = search(make_request(fixed=FIXED, workload=workload, kept_tokens=100), what_ifs=True)
    sizes = {one.variant.needs: one for one in plan.what_ifs}
    assert plan.chosen is not None
    assert sizes["trim"].total_bytes < plan.chosen.total_bytes
    assert sizes["truncation"].variant.label == "bf16, sources truncated to 512 tokens"
    assert sizes["truncation"].step_seconds < plan.chosen.step_seconds
    assert not any(refusal.allow == "trim" for refusal in plan.refusals)
    short = search(make_request(fixed=FIXED), what_ifs=True)
    assert {one.variant.needs for one in short.what_ifs} == {"adafactor", "8bit", "lora"}


def test_what_training_refuses_on_the_best_layout_is_shown_on_one_gpu(make_request: Make, card: Target) -> None:
    from seqfit.planning.candidates import list_layouts

    request = make_request(fixed={**FIXED, "parallel": "fsdp"}, layouts=list_layouts(2), target=card)
    plan = search(request, what_ifs=True)
    layouts = {one.variant.needs: one.layout for one in plan.what_ifs}
    assert all(str(layout) in ("one GPU", "ddp x 2", "fsdp x 2", "pipeline x 2") for layout in layouts.values())
    assert layouts["adafactor"].parallel != "fsdp"


def test_full_precision_is_compared_by_one_trace_and_searched_where_nothing_else_fits(make_request: Make) -> None:
    fixed = {"recompute": "none", "attention": "auto"}
    plan = search(make_request(fixed=fixed))
    assert {one.variant.precision for one in plan.best_of_each} == {"bf16"} or searched_both(plan.best_of_each)
    on_t4 = search(make_request(fixed=fixed, target=card_target(find_card("t4"), 1)))
    assert {one.variant.precision for one in on_t4.best_of_each} == {"fp32"}


def searched_both(found: list[PlanCandidate]) -> bool:
    """fp32 may be as fast for a model this small; then it is searched as well."""
    return {one.variant.precision for one in found} == {"bf16", "fp32"}
