from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seqfit.planning.cluster import ONE_GPU, GpuLayout
from seqfit.planning.layout_memory import (
    AT_BACKWARD_END,
    COMMUNICATION,
    IN_BACKWARD,
    IN_FORWARD,
    IN_UPDATE,
    MemoryCurves,
    ModelState,
    ShardSizes,
    find_peak,
)
from seqfit.planning.tape import ACTIVATIONS, GRADIENTS, LOSS, STATE, TEMPORARIES, WEIGHTS

SIZES = ShardSizes(10, 10, 10, root_bytes=20, root_gradient_bytes=20, end_bytes=20, stored_block_bytes=10)
# Forward, backward, its end, the update of a model of 100 bytes whose activations take 60 and logits 30.
CURVES = MemoryCurves(
    weight_bytes=100,
    state_bytes=200,
    gradient_bytes=100,
    gradients=np.array([0.0, 40.0, 100.0, 100.0]),
    root_gradients=np.array([0.0, 0.0, 20.0, 20.0]),
    newest_gradient=np.array([0.0, 10.0, 20.0, 0.0]),
    others={
        ACTIVATIONS: np.array([60.0, 30.0, 0.0, 0.0]),
        LOSS: np.array([30.0, 0.0, 0.0, 0.0]),
        TEMPORARIES: np.array([0.0, 5.0, 5.0, 50.0]),
    },
    phase=np.array([IN_FORWARD, IN_BACKWARD, AT_BACKWARD_END, IN_UPDATE]),
    is_first=np.ones(4, dtype=bool),
    sizes=SIZES,
)


def total(layout: GpuLayout, curves: MemoryCurves = CURVES, micro_batches: float = 1.0) -> int:
    return sum(find_peak(curves, layout, micro_batches).values())


@pytest.mark.parametrize(
    ("stage", "expected_gb"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)], ids=["none", "state", "gradients", "all"]
)
def test_the_example_of_zeros_authors_holds(stage: int, expected_gb: float) -> None:
    """7.5 billion weights on 64 GPUs in mixed precision with Adam: ZeRO, figure 1."""
    weights = 7.5e9
    state = ModelState(2 * weights, 2 * weights, 12 * weights)
    assert state.shard(stage, 64).bytes / 1e9 == pytest.approx(expected_gb, abs=0.05)


def test_layouts_split_model_state_as_zero_does() -> None:
    bare = replace(CURVES, others={}, sizes=ShardSizes(0, 0, 0, 0, 0, 0), newest_gradient=np.zeros(4))
    bare = replace(bare, root_gradients=np.zeros(4))
    state = ModelState(100, 100, 200)
    assert total(GpuLayout("ddp", 4), bare) == state.shard(0, 4).bytes
    assert total(GpuLayout("fsdp", 4), bare) == state.shard(3, 4).bytes


def test_one_gpu_has_what_is_live_at_its_peak() -> None:
    assert find_peak(CURVES, ONE_GPU) == {WEIGHTS: 100, STATE: 200, GRADIENTS: 100, TEMPORARIES: 50}


def test_ddp_keeps_all_gradients_in_its_buckets_from_the_start() -> None:
    # The peak moves to the forward, where one GPU has no gradients yet.
    assert find_peak(CURVES, GpuLayout("ddp", 2)) == {
        WEIGHTS: 100,
        STATE: 200,
        GRADIENTS: 100,
        ACTIVATIONS: 60,
        LOSS: 30,
    }


def test_ddp_adds_up_gradients_outside_of_its_buckets_until_the_last_micro_batch() -> None:
    accumulating = replace(CURVES, is_first=np.array([True, True, True, False]))
    assert find_peak(accumulating, GpuLayout("ddp", 2))[GRADIENTS] == 100 + 100
    assert total(GpuLayout("ddp", 2), accumulating) == total(ONE_GPU, accumulating) + CURVES.gradient_bytes


def test_ddp_with_half_the_rows_needs_no_more_than_one_gpu_with_all_and_its_buckets() -> None:
    half = replace(CURVES, others={name: curve / 2 for name, curve in CURVES.others.items()})
    assert total(GpuLayout("ddp", 2), half) <= total(ONE_GPU) + CURVES.gradient_bytes
    assert total(GpuLayout("ddp", 2), half) < total(GpuLayout("ddp", 2))


def test_fsdp_holds_shards_and_the_blocks_at_work() -> None:
    found = find_peak(CURVES, GpuLayout("fsdp", 4))
    # In the forward: the root, the block that runs and the next one.
    assert found == {WEIGHTS: 25, STATE: 50, ACTIVATIONS: 60, LOSS: 30, COMMUNICATION: 20 + 10 + 10}
    small = replace(CURVES, others={name: curve / 10 for name, curve in CURVES.others.items()})
    # At the end of the backward: the root's weights, its gradients twice, the last block's on their way.
    assert find_peak(small, GpuLayout("fsdp", 4))[COMMUNICATION] == 20 + 2 * 20 + 10


def test_offload_saves_what_leaves_the_gpu_and_no_more() -> None:
    for count in (2, 4, 8):
        fsdp, offload = (total(GpuLayout(parallel, count)) for parallel in ("fsdp", "offload"))
        assert 0 < fsdp - offload <= ModelState(100, 100, 200).shard(3, count).bytes
    assert not find_peak(CURVES, GpuLayout("offload", 2)).keys() & {WEIGHTS, GRADIENTS, STATE}


def test_the_first_stage_of_a_pipeline_keeps_a_micro_batch_for_each_stage() -> None:
    busy = replace(CURVES, others={ACTIVATIONS: np.array([600.0, 30.0, 0.0, 0.0])})
    one, four = (find_peak(busy, GpuLayout("pipeline", 4), micro_batches=number) for number in (1, 4))
    assert one[ACTIVATIONS] == 150
    assert four[ACTIVATIONS] == 600
    assert four[WEIGHTS] == (100 - 20) / 4 + 20  # with a whole embedding or head


def test_the_last_stage_of_a_pipeline_has_the_logits() -> None:
    wide = replace(CURVES, others={ACTIVATIONS: np.full(4, 8.0), LOSS: np.array([0.0, 300.0, 0.0, 0.0])})
    assert find_peak(wide, GpuLayout("pipeline", 4), micro_batches=4)[LOSS] == 300


def test_more_gpus_never_hold_more_each() -> None:
    for parallel in ("fsdp", "offload", "pipeline"):
        found = [total(GpuLayout(parallel, count)) for count in (2, 4, 8, 16)]
        assert found == sorted(found, reverse=True)
