from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqfit.hardware.cards import find_card
from seqfit.planning.candidates import build_variant
from seqfit.planning.cluster import ONE_GPU, GpuLayout, build_card_link
from seqfit.planning.layout_memory import COMMUNICATION
from seqfit.planning.placement import PlanRequest
from seqfit.planning.ranks import NCCL_BYTES, RankPrediction, RankRows, RankShare, explain_rank, predict_ranks
from seqfit.planning.search import trace_variant
from seqfit.planning.shape import Workload, assume_workload
from seqfit.planning.tape import GRADIENTS, STATE, WEIGHTS
from seqfit.recipe.schema import ModelRecipe
from seqfit.strategy.schema import Strategy

LAYOUTS = (ONE_GPU, *(GpuLayout(parallel, 2) for parallel in ("ddp", "fsdp", "offload", "pipeline")))
ROWS = 32


def predict(request: PlanRequest, budget: int = 10**6, **fields: Any) -> dict[str, RankPrediction]:
    strategy = Strategy(micro_batch_tokens=budget)
    model = trace_variant(request, build_variant(Strategy(**fields), "bf16"))
    rows = RankRows(request.workload, request.model_config, request.workload.sample())
    found = predict_ranks(
        model,
        request.target.rates("bf16"),
        rows,
        lambda steps: request.split(strategy, model.batching, steps),
        LAYOUTS,
        lambda count: build_card_link(find_card("rtx3090"), count),
    )
    return {str(rank.layout): rank for rank in found}


@pytest.fixture
def request_of(make_request: Any) -> PlanRequest:
    request: PlanRequest = make_request(workload=assume_workload(ROWS, 64, 8))
    return request


def test_ddp_with_half_the_rows_needs_no_more_than_one_gpu_with_all_and_its_buckets(request_of: PlanRequest) -> None:
    found = predict(request_of)
    one, ddp = found["one GPU"], found["ddp x 2"]
    assert ddp.peak_bytes <= one.peak_bytes + ddp.parts[GRADIENTS]

    def of_rows(rank: RankPrediction) -> int:
        return rank.peak_bytes - sum(rank.parts.get(part, 0) for part in (WEIGHTS, STATE, GRADIENTS))

    assert of_rows(ddp) < 0.6 * of_rows(one)


def test_offload_is_never_faster_than_fsdp_and_saves_no_more_than_what_leaves(request_of: PlanRequest) -> None:
    for budget in (300, 10**6):
        found = predict(request_of, budget)
        fsdp, offload = found["fsdp x 2"], found["fsdp x 2, offload"]
        assert offload.step_seconds >= fsdp.step_seconds
        leaves = sum(fsdp.parts.get(part, 0) for part in (WEIGHTS, STATE, GRADIENTS))
        assert 0 < fsdp.peak_bytes - offload.peak_bytes <= leaves


def test_the_busiest_rank_has_the_longest_rows(request_of: PlanRequest) -> None:
    lengths = np.array([100, 10, 10, 10], dtype=np.int32)
    workload = Workload(lengths, np.ones_like(lengths), (np.arange(4),), False, 1)
    rows, imbalance = RankRows(workload, request_of.model_config, workload.steps).find(2)
    assert rows[0].tolist() == [0]
    assert imbalance > 0.5


@pytest.mark.parametrize("lora", [None, {"rank": 4, "targets": ["q", "v"]}], ids=["all weights", "LoRA"])
def test_the_parts_of_every_layout_sum_to_its_peak(make_request: Any, lora: dict[str, Any] | None) -> None:
    request = make_request(model=ModelRecipe.model_validate({"path": "model", "lora": lora}))
    strategy = Strategy()
    model = trace_variant(request, build_variant(strategy, "bf16"))
    steps = request.split(strategy, model.batching, request.workload.sample())
    share = RankShare(model, request.target.rates("bf16"), steps)
    for layout in LAYOUTS[1:]:
        parts = share.find_parts(layout)
        total_bytes = sum(parts.values()) + 2**30
        peak = explain_rank(share, layout, label="bf16", total_bytes=total_bytes, context_bytes=2**28, fits=True)
        with_nccl = parts | {COMMUNICATION: parts.get(COMMUNICATION, 0) + NCCL_BYTES}
        assert {part.name: part.bytes for part in peak.parts} == with_nccl
        assert sum(part.bytes for part in peak.parts) == peak.allocated_bytes
        assert peak.reserved_bytes + peak.context_bytes == total_bytes
        assert max(map(sum, zip(*peak.timeline.values(), strict=True))) == pytest.approx(peak.allocated_bytes, rel=1e-3)
    if lora is None:
        assert COMMUNICATION in share.find_parts(GpuLayout("fsdp", 2))


def test_one_gpu_is_the_same_by_parts_and_by_events(request_of: PlanRequest) -> None:
    model = trace_variant(request_of, build_variant(Strategy(), "bf16"))
    steps = request_of.split(Strategy(), model.batching, request_of.workload.sample())
    shape, single = model.largest(steps)
    curves = model.curves(shape, single=single)
    live = sum(curves.others.values()) + curves.gradients + curves.weight_bytes + curves.state_bytes
    assert live.max() == pytest.approx(model.peak_bytes(shape, single=single))
