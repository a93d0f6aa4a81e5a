from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.hardware.cards import HOP_SECONDS, find_card
from seqfit.planning.cluster import (
    Cluster,
    Link,
    RankFiguresPredicted,
    RankWork,
    ScalingRow,
    compare_rates,
    link_of_ring,
    list_counts,
    predict_step,
    say_where_it_stops,
    sending_seconds,
)

FAST = Link(bytes_per_second=1e9, exchange_seconds=0.0)
WORK = RankWork(
    batch_seconds=4.0, update_seconds=1.0, micro_batches=2, weight_bytes=10**9, gradient_bytes=10**9, blocks=13
)
CLUSTER = Cluster(find_card("a100-40-sxm"), 64, 8, 25e9, "assumed")


def row(count: int, efficiency: float, kind: str = "strong") -> ScalingRow:
    figures = RankFiguresPredicted(1.0, 1.0, efficiency, 0.0, 0.0)
    return ScalingRow("ddp", count, kind, 32, None, figures)  # type: ignore[arg-type]


def test_the_example_of_the_module_holds() -> None:
    seconds, waiting = predict_step("ddp", 2, WORK, FAST, hides=False)
    assert seconds == pytest.approx(6.0)
    assert waiting / seconds == pytest.approx(1 / 6)


def test_one_process_sends_nothing() -> None:
    for way in ("ddp", "fsdp", "pipeline"):
        assert predict_step(way, 1, WORK, FAST, hides=False) == (5.0, 0.0)
        assert sending_seconds(way, 1, WORK, FAST) == 0.0


def test_ddp_sends_once_whatever_the_micro_batches_and_fsdp_for_each() -> None:
    more = replace(WORK, micro_batches=6)
    assert sending_seconds("ddp", 2, more, FAST) == sending_seconds("ddp", 2, WORK, FAST) == pytest.approx(1.0)
    assert sending_seconds("fsdp", 2, WORK, FAST) == pytest.approx(0.5 * 3 * 2)
    assert sending_seconds("fsdp", 2, more, FAST) == pytest.approx(0.5 * 3 * 6)


def test_a_frozen_model_sends_no_gradients() -> None:
    frozen = replace(WORK, gradient_bytes=0)
    assert sending_seconds("ddp", 2, frozen, FAST) == 0.0
    assert sending_seconds("fsdp", 2, frozen, FAST) == pytest.approx(0.5 * 2 * 2)


def test_small_exchanges_take_their_time() -> None:
    slow_start = Link(1e30, exchange_seconds=0.1)
    # 10**9 bytes are 39 buckets of 25 MiB and the first 2 words; fsdp has 13 blocks x 3 sendings x 2 micro-batches.
    assert sending_seconds("ddp", 2, WORK, slow_start) == pytest.approx(0.1 * (39 + 2))
    assert sending_seconds("fsdp", 2, WORK, slow_start) == pytest.approx(0.1 * (78 + 2))


def test_a_gpu_hides_most_of_the_sending_but_not_more_than_it_computes() -> None:
    seconds, waiting = predict_step("ddp", 2, WORK, FAST, hides=True)
    assert waiting == pytest.approx(0.3)
    assert seconds == pytest.approx(5.3)
    slow = Link(1e8, 0.0)  # ten seconds of sending behind 0.6 x 4 seconds of backward
    assert predict_step("ddp", 2, WORK, slow, hides=True)[1] == pytest.approx(10 - 2.4)
    assert predict_step("fsdp", 2, WORK, slow, hides=True)[1] == pytest.approx(30 - 4)


def test_ddp_repeats_the_update_and_fsdp_shares_it() -> None:
    nothing_sent = replace(WORK, weight_bytes=0, gradient_bytes=0)
    assert predict_step("ddp", 4, nothing_sent, FAST, hides=False)[0] == pytest.approx(5.0)
    assert predict_step("fsdp", 4, nothing_sent, FAST, hides=False)[0] == pytest.approx(4.25)


def test_a_pipeline_of_three_stages_and_six_micro_batches_waits_two_turns_of_eight() -> None:
    work = replace(WORK, batch_seconds=6.0, update_seconds=0.0, micro_batches=6)
    seconds, waiting = predict_step("pipeline", 3, work, FAST, hides=False)
    assert waiting / seconds == pytest.approx(2 / 8)


def test_a_link_is_found_from_the_time_of_an_all_reduce() -> None:
    link = link_of_ring(8_000_000, 4, seconds=0.013, exchange_seconds=0.001)
    assert link.bytes_per_second == pytest.approx(1.5 * 8_000_000 / 0.012)
    assert link_of_ring(8, 2, seconds=1e-4, exchange_seconds=2e-4).bytes_per_second > 0  # noise: one took no longer


def test_a_ring_is_as_slow_as_its_slowest_part() -> None:
    assert CLUSTER.link(8).bytes_per_second == 300e9
    assert CLUSTER.link(16).bytes_per_second == 25e9
    assert replace(CLUSTER, network_bytes_per_second=1e12).link(16).bytes_per_second == 300e9
    assert CLUSTER.link(16).exchange_seconds == pytest.approx(4 * HOP_SECONDS)


def test_counts_double_and_end_with_the_last_one() -> None:
    assert list_counts(1) == [1]
    assert list_counts(8) == [1, 2, 4, 8]
    assert list_counts(12) == [1, 2, 4, 8, 12]


def test_efficiency_is_one_where_n_processes_do_n_times_as_much() -> None:
    assert compare_rates(300.0, 3, 100.0) == 1.0


def test_the_point_where_more_stop_paying_is_said() -> None:
    rows = [row(1, 1.0), row(2, 0.8), row(4, 0.45), row(8, 0.2), row(1, 1.0, "weak"), row(2, 0.97, "weak")]
    assert say_where_it_stops(rows) == [
        "predicted, ddp, strong scaling: stops paying at 4 GPUs (efficiency 45.0%); take 2 at most.",
        "predicted, ddp, weak scaling: efficiency is still 97.0% with 2 GPUs.",
    ]
