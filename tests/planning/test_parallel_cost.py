from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.hardware.cards import find_card
from seqfit.planning.cluster import ONE_GPU, LayoutCost, RankWork, link_cards, memory_change, predict_step, step_seconds
from seqfit.planning.tape import ACTIVATIONS, GRADIENTS, STATE, WEIGHTS

PARTS = {WEIGHTS: 100, GRADIENTS: 100, STATE: 200, ACTIVATIONS: 50}
WORK = RankWork(
    batch_seconds=0.9, update_seconds=0.1, micro_batches=8, weight_bytes=10**9, gradient_bytes=10**9, blocks=13
)
CARD = find_card("rtx3090")


def test_one_gpu_changes_nothing() -> None:
    assert memory_change(ONE_GPU, PARTS, 10, 100) == 0
    assert step_seconds(ONE_GPU, WORK, 100, CARD) == 1.0


def test_ddp_has_no_second_copy_of_the_gradients() -> None:
    assert memory_change(LayoutCost("ddp", 2), PARTS, 10, gradient_bytes=100) == 0


def test_ddp_has_all_gradients_at_the_peak_where_one_gpu_has_some() -> None:
    assert memory_change(LayoutCost("ddp", 2), PARTS | {GRADIENTS: 30}, 10, gradient_bytes=100) == 70


def test_adapters_have_small_gradients_in_any_way() -> None:
    parts = {WEIGHTS: 1000, GRADIENTS: 2, STATE: 8}
    assert memory_change(LayoutCost("ddp", 2), parts, 10, gradient_bytes=4) == 2
    assert memory_change(LayoutCost("fsdp", 4), parts, 10, gradient_bytes=4) == (1000 + 4 + 8) // 4 + 30 - 1010


def test_fsdp_splits_what_is_not_activations() -> None:
    assert memory_change(LayoutCost("fsdp", 4), PARTS, 10, 100) == 100 + 30 - 400


def test_offload_leaves_a_gpu_no_more_than_the_blocks_at_work() -> None:
    assert memory_change(LayoutCost("offload", 4), PARTS, 10, 100) == 30 - 400


@pytest.mark.parametrize("way", ["ddp", "fsdp", "pipeline", "dataparallel"])
def test_two_cards_are_faster_than_one_but_not_twice_as_fast(way: str) -> None:
    assert 0.5 < step_seconds(LayoutCost(way, 2), WORK, 10**9, CARD) < 1.0


def test_a_plan_and_a_scaling_report_say_the_same_of_a_way() -> None:
    share = replace(WORK, batch_seconds=0.225, micro_batches=2)
    for way in ("ddp", "fsdp"):
        reported, _ = predict_step(way, 4, share, link_cards(CARD, 4), hides=True)
        assert step_seconds(LayoutCost(way, 4), WORK, 10**9, CARD) == reported


def test_a_pipeline_of_one_micro_batch_is_no_faster_than_one_card() -> None:
    whole = replace(WORK, update_seconds=0.0, micro_batches=1)
    assert step_seconds(LayoutCost("pipeline", 4), whole, 10**9, CARD) == pytest.approx(0.9)


def test_offload_is_fsdp_with_a_way_through_the_slot_and_an_update_on_the_host() -> None:
    fsdp, offload = (step_seconds(LayoutCost(way, 2), WORK, 10**9, CARD) for way in ("fsdp", "offload"))
    through_the_slot = 4 * 3e9 / 2 / CARD.pcie_bytes_per_second  # 4 micro-batches, 2 W + G, half of it each
    on_the_host = 7e9 / 2 / 10e9
    assert offload == pytest.approx(fsdp - WORK.update_seconds / 2 + through_the_slot + on_the_host)


def test_a_spread_names_the_fields_that_train_by_it() -> None:
    assert ONE_GPU.fields == {}
    assert LayoutCost("ddp", 2).fields == {"parallel": "ddp"}
    assert LayoutCost("offload", 2).fields == {"parallel": "fsdp", "offload": True}
    assert str(LayoutCost("offload", 2)) == "fsdp with offload, 2 GPUs"
