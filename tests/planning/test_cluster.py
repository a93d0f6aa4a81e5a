from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.hardware.cards import find_card
from seqfit.planning.cluster import (
    HOP_SECONDS,
    JITTER_SHARE,
    ONE_GPU,
    UNEVEN_SHARE,
    Cluster,
    GpuLayout,
    Link,
    RankWork,
    build_card_link,
    communication_seconds,
    list_counts,
)

FAST = Link(bytes_per_second=1e9, latency_seconds=0.0)
WORK = RankWork(
    batch_seconds=4.0, update_seconds=1.0, micro_batches=2, weight_bytes=10**9, gradient_bytes=10**9, blocks=13
)
CLUSTER = Cluster(find_card("a100-40-sxm"), 64, 8, 25e9, "assumed")
CARD = find_card("rtx3090")
ONE_CARD = RankWork(
    batch_seconds=0.9,
    update_seconds=0.1,
    micro_batches=8,
    weight_bytes=10**9,
    gradient_bytes=10**9,
    blocks=13,
    stored_weight_bytes=10**9,
)
DDP, FSDP = GpuLayout("ddp", 2), GpuLayout("fsdp", 2)


def on_cpu(layout: GpuLayout, work: RankWork = WORK) -> tuple[float, float]:
    return work.predict_step(layout, FAST, overlaps=False)


def on_cards(layout: GpuLayout, one_card: RankWork = ONE_CARD) -> float:
    return one_card.share(layout).predict_step(layout, build_card_link(CARD, layout.count))[0]


def test_the_example_of_the_module_holds() -> None:
    seconds, communication = on_cpu(DDP)
    assert seconds == pytest.approx(6.0)
    assert communication / seconds == pytest.approx(1 / 6)


def test_one_process_does_not_communicate() -> None:
    for parallel in ("ddp", "fsdp", "pipeline"):
        assert on_cpu(GpuLayout(parallel, 1)) == (5.0, 0.0)
        assert communication_seconds(GpuLayout(parallel, 1), WORK, FAST) == 0.0


def test_ddp_communicates_once_whatever_the_micro_batches_and_fsdp_for_each() -> None:
    more = replace(WORK, micro_batches=6)
    assert communication_seconds(DDP, more, FAST) == communication_seconds(DDP, WORK, FAST) == pytest.approx(1.0)
    assert communication_seconds(FSDP, WORK, FAST) == pytest.approx(0.5 * 3 * 2)
    assert communication_seconds(FSDP, more, FAST) == pytest.approx(0.5 * 3 * 6)


def test_a_frozen_model_sends_no_gradients() -> None:
    frozen = replace(WORK, gradient_bytes=0)
    assert communication_seconds(DDP, frozen, FAST) == 0.0
    assert communication_seconds(FSDP, frozen, FAST) == pytest.approx(0.5 * 2 * 2)


def test_every_collective_has_its_latency() -> None:
    slow_start = Link(1e30, latency_seconds=0.1)
    # 10**9 bytes are 39 buckets of 25 MiB; fsdp has 13 units x 3 collectives, the first unit
    # one less, x 2 micro-batches; both 2 small ones.
    assert communication_seconds(DDP, WORK, slow_start) == pytest.approx(0.1 * (39 + 2))
    assert communication_seconds(FSDP, WORK, slow_start) == pytest.approx(0.1 * (76 + 2))


def test_a_gpu_hides_what_its_backward_has_the_time_for() -> None:
    # Of 2 s, the backward of the last micro-batch takes two thirds. 1 s of communication follows it bucket by bucket:
    # only the last block's remainder is left when it ends.
    seconds, communication = WORK.predict_step(DDP, FAST)
    late = 4.0 * (UNEVEN_SHARE + JITTER_SHARE / 2**0.5)  # of the slower rank, in two micro-batches
    assert 0 < communication - late < 1 / 13
    assert seconds == pytest.approx(5 + communication)
    slow = Link(1e8, 0.0)  # ten seconds of communication
    first_bucket = 4 / 3 * 25 * 2**20 / 1e9  # it starts when so much of the gradients is there
    assert WORK.predict_step(DDP, slow)[1] == pytest.approx(10 - 4 / 3 + first_bucket + late, rel=1e-3)
    sent = 1.0 * 2 * (1 + 12 / 13 + 1) * 0.5 * 10  # the first unit is gathered once, the others twice, all scattered
    assert sent - 4 < WORK.predict_step(FSDP, slow)[1] - late < sent


def test_a_slower_link_never_makes_a_step_shorter_and_offload_is_never_faster_than_fsdp() -> None:
    links = [
        Link(rate, 1e-5, host, is_host_way=same)
        for rate in (1e9, 1e10, 1e11)
        for host in (5e9, 2e10)
        for same in (True, False)
    ]
    for link in links:
        slower = replace(link, bytes_per_second=link.bytes_per_second / 3)
        for parallel in ("ddp", "fsdp", "offload", "pipeline"):
            layout = GpuLayout(parallel, 4)
            assert WORK.predict_step(layout, link)[0] <= WORK.predict_step(layout, slower)[0]
        fsdp, offload = (WORK.predict_step(GpuLayout(parallel, 4), link)[0] for parallel in ("fsdp", "offload"))
        assert offload >= fsdp


def test_ddp_repeats_the_update_and_fsdp_shares_it() -> None:
    nothing_sent = replace(WORK, weight_bytes=0, gradient_bytes=0)
    assert on_cpu(GpuLayout("ddp", 4), nothing_sent)[0] == pytest.approx(5.0)
    assert on_cpu(GpuLayout("fsdp", 4), nothing_sent)[0] == pytest.approx(4.25)


def test_a_pipeline_of_three_stages_and_six_micro_batches_is_idle_two_turns_of_eight() -> None:
    work = replace(WORK, batch_seconds=6.0, update_seconds=0.0, micro_batches=6)
    seconds, waiting = on_cpu(GpuLayout("pipeline", 3), work)
    assert waiting / seconds == pytest.approx(2 / 8)


def test_one_gpu_changes_nothing() -> None:
    assert on_cards(ONE_GPU) == 1.0


@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "pipeline", "dataparallel"])
def test_two_gpus_are_faster_than_one_but_not_twice_as_fast(parallel: str) -> None:
    assert 0.5 < on_cards(GpuLayout(parallel, 2)) < 1.0


def test_ranks_share_the_batch_and_its_micro_batches_and_stages_only_the_work() -> None:
    ddp, pipeline = (ONE_CARD.share(GpuLayout(parallel, 4)) for parallel in ("ddp", "pipeline"))
    assert (ddp.batch_seconds, ddp.micro_batches) == (0.225, 2)
    assert (pipeline.batch_seconds, pipeline.micro_batches) == (0.225, 8)
    assert ONE_CARD.share(GpuLayout("ddp", 16)).micro_batches == 1


def test_a_pipeline_of_one_micro_batch_is_no_faster_than_one_gpu() -> None:
    whole = replace(ONE_CARD, update_seconds=0.0, micro_batches=1)
    assert on_cards(GpuLayout("pipeline", 4), whole) == pytest.approx(0.9)


def test_offload_copies_over_pcie_and_updates_on_the_host() -> None:
    work = replace(ONE_CARD, batch_seconds=1e-9)  # nothing to hide anything behind
    over_pcie = 4 * 3e9 / 2 / (0.8 * CARD.pcie_bytes_per_second)  # 4 micro-batches, 2 W + G, half of it each
    over_pcie *= 12.67 / 13  # what no block holds stays from the forward to the backward
    on_the_host = 7e9 / 2 / 10e9
    fsdp, offload = on_cards(FSDP, work), on_cards(GpuLayout("offload", 2), work)
    assert offload == pytest.approx(fsdp - work.update_seconds / 2 + over_pcie + on_the_host, rel=0.01)


def test_a_layout_names_the_fields_of_its_strategy() -> None:
    assert ONE_GPU.fields == {}
    assert DDP.fields == {"parallel": "ddp"}
    assert GpuLayout("offload", 2).fields == {"parallel": "fsdp", "offload": True}
    assert [str(layout) for layout in (ONE_GPU, DDP, GpuLayout("offload", 2))] == [
        "one GPU",
        "ddp x 2",
        "fsdp x 2, offload",
    ]


def test_a_ring_is_as_slow_as_its_slowest_part() -> None:
    assert CLUSTER.link(8).bytes_per_second == pytest.approx(0.8 * 300e9)  # of the data sheet's
    assert CLUSTER.link(16).bytes_per_second == pytest.approx(0.9 * 25e9)
    assert replace(CLUSTER, network_bytes_per_second=1e12).link(16).bytes_per_second == pytest.approx(0.8 * 300e9)
    assert CLUSTER.link(16).latency_seconds == pytest.approx(4 * HOP_SECONDS)


def test_counts_double_and_end_with_the_last_one() -> None:
    assert list_counts(1) == [1]
    assert list_counts(8) == [1, 2, 4, 8]
    assert list_counts(12) == [1, 2, 4, 8, 12]
