"""Replays of programs whose truth is known; benchmarks/diagnosis has many more."""

from __future__ import annotations

import pytest

from seqfit.profiling.host import HostTimeline
from seqfit.profiling.replay import Change, Replay
from seqfit.profiling.steps import find_steps
from seqfit.profiling.trace import Call, HostSpan, KernelSpan, Op, Trace

US = 1000


def loader_with_a_sync(steps: int = 5, loading_us: int = 400) -> Trace:
    """Two kernels of 50 us, a sync until they end, then a loader."""
    calls, kernels, ranges = [], [], []
    now = number = 0
    for _ in range(steps):
        ranges.append(HostSpan("data_wait", now * US, loading_us * US, "1"))
        now += loading_us
        for place in range(2):
            calls.append(Call("cudaLaunchKernel", (now + 5 * place) * US, 5 * US, "1", number + place))
            kernels.append(KernelSpan("gemm", (now + 5 + 50 * place) * US, 50 * US, 0, 7, number + place))
        calls.append(Call("cudaStreamSynchronize", (now + 10) * US, 96 * US, "1", number + 2))
        number += 3
        now += 106
    marks = tuple(HostSpan(f"ProfilerStep#{n}", n * (now // steps) * US, now // steps * US, "1") for n in range(steps))
    trace = Trace("x", "nsight", calls=tuple(calls), kernels=tuple(kernels), ranges=tuple(ranges), steps=marks)
    return find_steps(trace)


def replay(trace: Trace) -> Replay:
    return Replay(trace, HostTimeline(trace))


def test_unchanged_it_takes_as_long_as_it_did_without_the_first_step() -> None:
    trace = loader_with_a_sync()
    assert replay(trace).before_ns == pytest.approx(trace.span_ns * 4 / 5, rel=0.01)
    few = loader_with_a_sync(steps=2)
    assert replay(few).before_ns == pytest.approx(few.span_ns, rel=0.01)


def test_a_loader_that_the_gpus_work_hides_counts_for_what_sticks_out() -> None:
    """100 us of work per step and 110 us of loading: the first batch is waited for, the others for 10 us."""
    calls, kernels, ranges = [], [], []
    busy_until = 0
    for step in range(6):
        now = 115 * step
        ranges.append(HostSpan("data_wait", now * US, 110 * US, "1"))
        calls.append(Call("cudaLaunchKernel", (now + 110) * US, 5 * US, "1", step))
        start = max(now + 115, busy_until)
        kernels.append(KernelSpan("gemm", start * US, 100 * US, 0, 7, step))
        busy_until = start + 100
    marks = tuple(HostSpan(f"ProfilerStep#{n}", 115 * n * US, 115 * US, "1") for n in range(6))
    trace = Trace("x", "nsight", calls=tuple(calls), kernels=tuple(kernels), ranges=tuple(ranges), steps=marks)
    assert replay(find_steps(trace)).gain(Change({"loading data": 0.0})) == pytest.approx(15 / 115, abs=0.01)


def test_without_the_loader_only_the_kernels_are_left() -> None:
    assert replay(loader_with_a_sync()).gain(Change({"loading data": 0.0})) == pytest.approx(400 / 506, abs=0.02)


def test_without_the_sync_the_host_loads_while_the_gpu_computes() -> None:
    gain = replay(loader_with_a_sync(steps=20)).gain(Change(without_syncs=True))
    assert gain == pytest.approx(96 / 506, abs=0.02)


def test_no_change_saves_more_than_the_step() -> None:
    everything = Change({"loading data": 0.0, "launching": 0.0, "Python": 0.0}, without_syncs=True)
    assert 0.7 < replay(loader_with_a_sync()).gain(everything) < 1


def test_two_changes_together_save_no_more_than_both() -> None:
    run = replay(loader_with_a_sync())
    first, second = Change({"loading data": 0.0}), Change(without_syncs=True)
    both = run.gain(first | second)
    assert both <= run.gain(first) + run.gain(second) + 1e-9
    assert both >= run.gain(first)


def test_a_kernel_that_waits_for_another_stream_still_does() -> None:
    calls = tuple(Call("cudaLaunchKernel", n * 10 * US, 5 * US, "1", n) for n in range(3))
    kernels = (
        KernelSpan("backward", 5 * US, 100 * US, 0, 7, 0),
        KernelSpan("ncclDevKernel", 105 * US, 200 * US, 0, 20, 1),
        KernelSpan("adam", 305 * US, 50 * US, 0, 7, 2),
    )
    run = replay(Trace("x", "nsight", calls=calls, kernels=kernels))
    assert run.before_ns == pytest.approx(355 * US, rel=0.01)
    assert run.run(Change(work={1: 0.0})) == pytest.approx(155 * US, rel=0.02)
    assert run.run(Change(free=frozenset({1}))) == pytest.approx(155 * US, rel=0.02)


def test_a_cpu_trace_is_only_the_time_of_the_host() -> None:
    steps = (HostSpan("ProfilerStep#0", 0, 1000, "1"),)
    ranges = (HostSpan("data_wait", 0, 600, "1"),)
    run = replay(Trace("x", "kineto", ops=(Op("aten::mm", 600, 300, "1"),), ranges=ranges, steps=steps))
    assert run.before_ns == 1000
    assert run.gain(Change({"loading data": 0.0})) == pytest.approx(0.6)
