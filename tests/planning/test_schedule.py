from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from seqfit.planning.schedule import (
    BUCKET_BYTES,
    ModelUnit,
    Segment,
    ShardCosts,
    UnitSchedule,
    build_even_schedule,
    count_collectives,
    pipeline_seconds,
    split_evenly,
    step_sharded,
    wait_for_buckets,
)

ROOT, BLOCK = ModelUnit(0, 0), ModelUnit(1, 1, 1)
# A root that does nothing, and three blocks with a backward of 3 seconds each.
BACKWARD = UnitSchedule((ROOT, BLOCK, BLOCK, BLOCK), tuple(Segment(n, 0.0, 3.0 if n else 0.0, 1) for n in range(4)))


def fixed(seconds: float) -> Callable[[float], float]:
    return lambda size_bytes: seconds * (size_bytes > 0)


COSTS = ShardCosts(gather=fixed(1), scatter=fixed(2), load=fixed(0), store=fixed(0))


def test_the_example_of_the_module_holds() -> None:
    gathers_of_the_forward = 3  # which computes nothing that could hide them
    assert step_sharded(BACKWARD, 1.0, COSTS) == pytest.approx(gathers_of_the_forward + 1 + 9 + 2)


def test_what_is_sent_slower_than_it_computes_is_all_that_counts() -> None:
    slow = replace(COSTS, gather=fixed(10), scatter=fixed(20))
    # Six gathers and three scatters one after the other: the first block's waits for the link, not for its work.
    assert step_sharded(BACKWARD, 1.0, slow) == pytest.approx(6 * 10 + 3 * 20)


def test_a_free_link_costs_nothing() -> None:
    free = ShardCosts(fixed(0), fixed(0), fixed(0), fixed(0))
    assert step_sharded(BACKWARD, 2.0, free) == pytest.approx(2 * 9)


def test_copies_from_the_host_come_before_the_gather_and_share_its_way_over_pcie() -> None:
    offload = replace(COSTS, load=fixed(1), store=fixed(1))
    shared = replace(offload, shares_link=True)
    alone, copied, on_one_way = (step_sharded(BACKWARD, 1.0, costs) for costs in (COSTS, offload, shared))
    assert alone < copied < on_one_way


def test_frozen_blocks_are_gathered_and_never_scattered() -> None:
    frozen = replace(BACKWARD, units=(ROOT, *[replace(BLOCK, gradient_bytes=0)] * 3))
    assert step_sharded(frozen, 1.0, COSTS) == pytest.approx(3 + 1 + 9)
    assert count_collectives(BACKWARD) - count_collectives(frozen) == 3


def test_gradients_are_reduced_bucket_by_bucket_as_the_backward_makes_them() -> None:
    bucket = replace(BLOCK, gradient_bytes=BUCKET_BYTES)
    schedule = UnitSchedule((bucket,) * 4, tuple(Segment(n, 0.0, 1.0, BUCKET_BYTES) for n in range(4)))
    assert wait_for_buckets(schedule, 1.0, fixed(0.5)) == pytest.approx(0.5)  # only the last bucket
    assert wait_for_buckets(schedule, 1.0, fixed(2.0)) == pytest.approx(1 + 4 * 2 - 4)  # all, from the first on


def test_gradients_of_an_embedding_are_last_and_nothing_hides_them() -> None:
    large = 40 * BUCKET_BYTES
    schedule = UnitSchedule((ROOT, BLOCK), (Segment(0, 0.0, 0.0, large), Segment(1, 0.1, 0.9, 0)))
    assert wait_for_buckets(schedule, 100.0, fixed(1.0)) == pytest.approx(40.0)


def test_nothing_is_reduced_where_nothing_is_trained() -> None:
    assert wait_for_buckets(build_even_schedule(4, 1000, 0, 1000), 1.0, fixed(1.0)) == 0.0


def test_a_pipeline_is_as_fast_as_its_slowest_stage() -> None:
    assert split_evenly([1, 1, 1, 1], 2) == pytest.approx(2)
    assert split_evenly([3, 1, 1, 1], 2) == pytest.approx(3)
    assert split_evenly([1, 1, 1], 2) == pytest.approx(2)
    # Three stages, six micro-batches of one second per stage: two of eight turns are idle.
    assert pipeline_seconds(1.0, 3, 6, send=0.0) == pytest.approx(8)
    assert pipeline_seconds(1.0, 3, 6, send=0.1) == pytest.approx(8 + 4 * 0.1)
    assert pipeline_seconds(1.0, 3, 6, send=1.0) == pytest.approx(8 * 2 + 4)
