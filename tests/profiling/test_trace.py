from __future__ import annotations

from seqfit.profiling.trace import Call, HostSpan, KernelSpan, Op, Trace


def test_the_window_is_that_of_the_steps_where_there_are_steps() -> None:
    kernels = (KernelSpan("a", 5, 100, 0, 0),)
    steps = (HostSpan("ProfilerStep#1", 10, 20, "1"), HostSpan("ProfilerStep#2", 30, 20, "1"))
    assert Trace("x", "kineto", kernels=kernels).window_ns == (5, 105)
    assert Trace("x", "kineto", kernels=kernels, steps=steps).window_ns == (10, 50)


def test_a_trace_without_steps_counts_as_one() -> None:
    assert Trace("x", "kineto").step_count == 1
    assert Trace("x", "kineto").span_ns == 0


def test_only_calls_or_kernels_make_it_a_gpus_trace() -> None:
    assert not Trace("x", "kineto", ops=(Op("aten::mm", 0, 1, "1"),)).on_gpu
    assert Trace("x", "nsight", calls=(Call("cudaFree", 0, 1, "1"),)).on_gpu
