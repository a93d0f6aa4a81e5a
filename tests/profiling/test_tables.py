from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import rank_operators, rank_spans
from seqfit.profiling.trace import Call, Op, Trace

TENTH_OF_A_PER_CENT = 0.001


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
def test_the_api_table_has_share_calls_average_and_total(both: dict[str, Path], kind: str) -> None:
    rows = rank_spans(read_trace(both[kind]).calls)
    assert [(row.name, row.calls, row.total_ns) for row in rows] == [
        ("cudaStreamSynchronize", 1, 60_000),
        ("cudaLaunchKernel", 3, 20_000),
        ("cudaMemcpyAsync", 1, 20_000),
    ]
    assert [row.share for row in rows] == pytest.approx([0.6, 0.2, 0.2], abs=TENTH_OF_A_PER_CENT)
    assert rows[1].average_ns == pytest.approx(20_000 / 3)


def test_the_published_table_comes_out_of_its_own_times() -> None:
    published = {"cudaStreamSynchronize": 499, "cudaLaunchKernel": 274, "cudaMemcpyAsync": 227}
    calls = tuple(Call(name, 0, time_ns, "1") for name, time_ns in published.items())
    rows = rank_spans(Trace("x", "nsight", calls=calls).calls)
    assert [f"{row.name} {100 * row.share:.1f}%" for row in rows] == [
        "cudaStreamSynchronize 49.9%",
        "cudaLaunchKernel 27.4%",
        "cudaMemcpyAsync 22.7%",
    ]


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
def test_kernels_and_copies_are_ranked_by_time_on_the_device(both: dict[str, Path], kind: str) -> None:
    trace = read_trace(both[kind])
    assert [(row.name, row.share) for row in rank_spans(trace.kernels)] == [("gemm", 0.6), ("softmax", 0.4)]
    assert [(row.name, row.calls) for row in rank_spans(trace.copies)] == [("HtoD", 1)]


def test_operators_have_their_own_time_and_nodes_their_own_name() -> None:
    ops = (
        Op("aten::linear", 0, 100, "1"),
        Op("aten::mm", 10, 80, "1"),
        Op("autograd::engine::evaluate_function: MmBackward0", 200, 20, "1"),
    )
    rows = rank_operators(Trace("x", "kineto", ops=ops))
    assert [(row.name, row.total_ns) for row in rows] == [("aten::mm", 80), ("MmBackward0", 20), ("aten::linear", 20)]
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_an_empty_trace_has_empty_tables() -> None:
    assert rank_spans(Trace("x", "kineto").calls) == rank_operators(Trace("x", "kineto")) == []
