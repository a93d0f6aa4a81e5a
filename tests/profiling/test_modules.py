from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import ELSEWHERE, rank_modules, tidy_name
from seqfit.profiling.trace import Call, HostSpan, KernelSpan, Op, Trace

NODE = "autograd::engine::evaluate_function: "
RANGES = (
    HostSpan("module: model.encoder.block.0", 0, 100, "1"),
    HostSpan("module: model.encoder.block.0.layer.0.SelfAttention", 10, 50, "1"),
)
OPS = (
    Op("aten::view", 5, 2, "1", 3),  # makes no node: its sequence number is that of the next one that does
    Op("aten::mm", 20, 30, "1", 3),
    Op("aten::add", 70, 10, "1", 4),
    Op(f"{NODE}AddBackward0", 200, 20, "2", 4, True),
    Op(f"{NODE}MmBackward0", 300, 40, "2", 3, True),
    Op("aten::mm", 310, 25, "2"),
    Op(f"{NODE}AccumulateGrad", 400, 5, "2"),
)


def test_on_a_cpu_operators_belong_to_the_innermost_module_forward_and_backward() -> None:
    rows = {row.name: row for row in rank_modules(Trace("x", "kineto", ops=OPS, ranges=RANGES))}
    attention, block = rows["encoder.block.0.SelfAttention"], rows["encoder.block.0"]
    assert (attention.forward_ns, attention.backward_ns) == (30, 40)
    assert (block.forward_ns, block.backward_ns) == (12, 20)
    assert rows[ELSEWHERE].total_ns == 5
    assert attention.share == pytest.approx(70 / 107)


def test_on_a_gpu_a_kernel_belongs_to_where_it_was_launched() -> None:
    calls = (Call("cudaLaunchKernel", 30, 1, "1", 1), Call("cudaLaunchKernel", 312, 1, "2", 2))
    kernels = (
        KernelSpan("gemm", 500, 1000, 0, 7, 1),
        KernelSpan("gemm", 1500, 2000, 0, 7, 2),
        KernelSpan("x", 0, 10, 0, 7, 9),
    )
    trace = Trace("x", "kineto", ops=OPS, ranges=RANGES, calls=calls, kernels=kernels)
    rows = {row.name: (row.forward_ns, row.backward_ns) for row in rank_modules(trace)}
    assert rows == {"encoder.block.0.SelfAttention": (1000, 2000), ELSEWHERE: (10, 0)}


def test_ranges_of_nvtx_stand_for_modules_in_nsights_traces(both: dict[str, Path]) -> None:
    rows = {row.name: row.total_ns for row in rank_modules(read_trace(both["nsight"]))}
    assert rows == {"encoder": 70_000, "softmax": 30_000}


def test_torchs_own_names_of_modules_are_taken_where_there_are_no_ranges() -> None:
    frames = (HostSpan("nn.Module: T5Attention_3", 0, 100, "1"),)
    rows = rank_modules(Trace("x", "kineto", ops=OPS[:2], frames=frames))
    assert [row.name for row in rows] == ["T5Attention_3"]


@pytest.mark.parametrize(
    ("name", "tidy"),
    [
        ("module: model.encoder.block.3.layer.0.SelfAttention", "encoder.block.3.SelfAttention"),
        ("module: model.model.decoder.layers.1.self_attn", "model.decoder.layers.1.self_attn"),
        ("module: (loss)", "(loss)"),
    ],
)
def test_names_are_the_models_own_without_lists(name: str, tidy: str) -> None:
    assert tidy_name(name) == tidy
