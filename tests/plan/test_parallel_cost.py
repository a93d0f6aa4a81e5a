from __future__ import annotations

from seqfit.hardware.card import find_card
from seqfit.plan.parallel_cost import ALONE, Spread, memory_change, step_seconds
from seqfit.plan.tape import ACTIVATIONS, GRADIENTS, STATE, WEIGHTS

PARTS = {WEIGHTS: 100, GRADIENTS: 100, STATE: 200, ACTIVATIONS: 50}


def test_one_gpu_changes_nothing() -> None:
    assert memory_change(ALONE, PARTS, 10) == 0
    assert step_seconds(ALONE, 1.0, 100, find_card("rtx3090")) == 1.0


def test_ddp_keeps_a_second_copy_of_the_gradients() -> None:
    assert memory_change(Spread("ddp", 2), PARTS, 10) == 100


def test_fsdp_splits_what_is_not_activations() -> None:
    assert memory_change(Spread("fsdp", 4), PARTS, 10) == 100 + 30 - 400


def test_offload_takes_weights_and_state_away() -> None:
    assert memory_change(Spread("offload", 1), PARTS, 10) == 10 - 300


def test_two_cards_are_faster_than_one_but_not_twice_as_fast() -> None:
    card = find_card("rtx3090")
    for way in ("ddp", "fsdp", "pipeline", "dataparallel"):
        seconds = step_seconds(Spread(way, 2), 1.0, 10**9, card)
        assert 0.5 < seconds < 1.0, way
