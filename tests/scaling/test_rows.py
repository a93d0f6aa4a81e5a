from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.planning.cluster import Link
from seqfit.scaling.measure import BUFFER_BYTES, ONE_PROCESS, UNIT_BYTES, RankFigures
from seqfit.scaling.report import (
    ScalingPlace,
    build_rows,
    find_note,
    find_places,
    fit_ring_link,
    predict_group,
    summarise_repeats,
)

ONE = RankFigures(
    step_seconds=1.0,
    busy_seconds=0.95,
    queued_seconds=0.0,
    data_seconds=0.05,
    update_seconds=0.1,
    tokens=1000.0,
    examples=32.0,
    planned_imbalance=0.0,
    micro_batches=4.0,
    peak_bytes=800,
    weight_bytes=10**8,
    gradient_bytes=10**8,
    blocks=13,
    probe_seconds=0.10,
    reduce_seconds=0.0,
    small_reduce_seconds=0.0,
)
TWO = [
    replace(ONE, step_seconds=0.70, busy_seconds=0.50, micro_batches=2.0, peak_bytes=700, probe_seconds=0.11),
    replace(ONE, step_seconds=0.68, busy_seconds=0.58, micro_batches=2.0, peak_bytes=600, probe_seconds=0.11),
]
PLACE = ScalingPlace(2, Link(bytes_per_second=2e9, latency_seconds=0.0), slower=1.1)


def test_a_group_is_as_slow_as_its_slowest_rank() -> None:
    found = summarise_repeats([TWO], single_rate=1000.0)
    assert found.step_seconds == 0.70
    assert found.efficiency == pytest.approx(1000 / 0.70 / 2000)


def test_what_is_neither_work_nor_a_wait_for_a_core_or_a_batch_is_communication() -> None:
    assert summarise_repeats([TWO], 1000.0).communication_share == pytest.approx((0.15 / 0.70 + 0.05 / 0.68) / 2)
    queued = [replace(rank, queued_seconds=0.05) for rank in TWO]
    assert summarise_repeats([queued], 1000.0).communication_share == pytest.approx((0.10 / 0.70) / 2)


def test_one_process_has_no_communication() -> None:
    assert summarise_repeats([[replace(ONE, busy_seconds=0.2)]], 1000.0).communication_share == 0.0


def test_balance_compares_the_busiest_rank_with_the_mean() -> None:
    assert summarise_repeats([TWO], 1000.0).imbalance == pytest.approx(0.58 / 0.54 - 1)


def test_the_median_of_the_repeats_counts_and_the_extremes_of_memory() -> None:
    slow = [replace(rank, step_seconds=9.0, peak_bytes=900) for rank in TWO]
    found = summarise_repeats([TWO, slow, TWO], 1000.0)
    assert found.step_seconds == 0.70
    assert (found.lowest_bytes, found.highest_bytes) == (600, 900)


def test_on_gpus_the_share_is_not_known_and_not_zero() -> None:
    found = summarise_repeats([[replace(rank, busy_seconds=None) for rank in TWO]], 1000.0)
    assert found.communication_share is None
    assert found.imbalance is None


def test_the_example_of_the_module_holds() -> None:
    found = predict_group("ddp", [TWO], [[ONE]], PLACE, hides=False)
    assert found.step_seconds == pytest.approx(0.655)
    assert found.efficiency == pytest.approx(1.0 / (2 * 0.655))
    assert found.communication_share == pytest.approx(0.05 / 0.655)


def test_weak_scaling_is_predicted_from_the_tokens_of_its_larger_batch() -> None:
    larger = [replace(rank, tokens=2000.0) for rank in TWO]
    assert predict_group("ddp", [larger], [[ONE]], PLACE, hides=False).step_seconds == pytest.approx(0.99 + 0.11 + 0.05)


def test_a_place_is_found_from_all_groups_of_its_size() -> None:
    ddp = [replace(rank, reduce_seconds=0.009, small_reduce_seconds=0.001) for rank in TWO]
    fsdp = [replace(rank, probe_seconds=0.13) for rank in ddp]
    (place,) = find_places({ONE_PROCESS: [[ONE]], ("ddp", 2): [ddp], ("fsdp", 2): [fsdp]})
    assert place.slower == pytest.approx(1.2)
    assert place.link.bytes_per_second == pytest.approx(BUFFER_BYTES / 0.008)


def test_what_fsdp_adds_is_predicted_from_what_it_added_to_small_and_large_units() -> None:
    fsdp = [replace(rank, reduce_seconds=1.0, small_unit_seconds=0.002, large_unit_seconds=0.012) for rank in TWO]
    (place,) = find_places({ONE_PROCESS: [[ONE]], ("fsdp", 2): [fsdp]})
    assert place.link.unit_seconds == 0.002
    assert place.link.unit_bytes_per_second == pytest.approx(UNIT_BYTES / 0.010)
    found = predict_group("fsdp", [fsdp], [[ONE]], replace(place, slower=1.0), hides=False)
    # 13 units in 2 micro-batches, each for its hooks and copies, and 10**8 bytes in each of them; the update is shared.
    communication = 2 * (13 * 0.002 + 10**8 / place.link.unit_bytes_per_second)
    assert found.step_seconds == pytest.approx(0.9 / 2 + 0.1 / 2 + communication, rel=1e-3)


def test_rows_keep_the_order_of_the_groups_and_one_process_is_not_predicted() -> None:
    ddp = [replace(rank, reduce_seconds=0.009, small_reduce_seconds=0.001) for rank in TWO]
    found = {ONE_PROCESS: [[ONE]], ("ddp", 2): [ddp]}
    rows = build_rows(found, find_places(found), weak=False, cores=2, on_gpus=False)
    assert [(row.strategy, row.processes, row.predicted is None) for row in rows] == [
        ("single", 1, True),
        ("ddp", 2, False),
    ]
    assert rows[0].measured is not None
    assert rows[0].measured.efficiency == 1.0


def test_what_limits_a_row_is_noted() -> None:
    assert find_note("ddp", [TWO], cores=2) == ""
    assert find_note("ddp", [TWO], cores=1) == "2 processes share 1 cores"
    assert find_note("ddp", [TWO], cores=None) == ""
    few = [replace(rank, examples=1.0) for rank in TWO]
    assert find_note("ddp", [few], cores=2) == "only 1 examples"
    assert find_note("pipeline", [few], cores=2) == ""
    queued = [replace(rank, queued_seconds=0.14) for rank in TWO]
    assert find_note("ddp", [queued], cores=2).startswith("busy machine, waits for a core 20.")


def test_a_link_is_found_from_the_time_of_an_all_reduce() -> None:
    link = fit_ring_link(8_000_000, 4, seconds=0.013, latency_seconds=0.001)
    assert link.bytes_per_second == pytest.approx(1.5 * 8_000_000 / 0.012)
    assert fit_ring_link(8, 2, seconds=1e-4, latency_seconds=2e-4).bytes_per_second > 0  # noise: one took no longer
