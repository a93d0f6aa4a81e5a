from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import GpuTime, diagnose
from seqfit.profiling.trace import HostSpan, KernelSpan, Trace

TENTH_OF_A_PER_CENT = 0.001


def _gpus(trace: Trace) -> list[GpuTime]:
    return diagnose(trace).gpus


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
def test_busy_idle_and_its_causes_add_up_to_the_window(both: dict[str, Path], kind: str) -> None:
    (gpu,) = diagnose(read_trace(both[kind])).gpus
    assert gpu.computing == pytest.approx(100 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.copying == pytest.approx(10 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.idle == pytest.approx(40 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.causes["launching"] == pytest.approx(30 / 150, abs=TENTH_OF_A_PER_CENT)  # 0..10, and 80..100
    assert gpu.causes["copying"] == pytest.approx(10 / 150, abs=TENTH_OF_A_PER_CENT)  # 130..140, in the copy's call
    assert gpu.causes["waiting in a sync"] == 0  # which ended when the GPU became idle
    assert sum(gpu.causes.values()) == pytest.approx(gpu.idle)


def test_the_part_of_a_gap_in_which_the_loop_waits_for_data_is_its_own(both: dict[str, Path]) -> None:
    trace = replace(read_trace(both["kineto"]), ranges=(HostSpan("data_wait", 80_000, 15_000, "7"),))
    (gpu,) = _gpus(trace)
    assert gpu.causes["loading data"] == pytest.approx(15 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.causes["launching"] == pytest.approx(15 / 150, abs=TENTH_OF_A_PER_CENT)


def test_a_kernel_that_was_queued_before_the_gap_is_the_devices_matter(both: dict[str, Path]) -> None:
    trace = read_trace(both["kineto"])
    calls = tuple(replace(call, start_ns=85_000) if call.correlation == 5 else call for call in trace.calls)
    (gpu,) = _gpus(replace(trace, calls=calls))
    assert gpu.causes["device"] == pytest.approx(10 / 150, abs=TENTH_OF_A_PER_CENT)


def test_only_the_steps_count_where_there_are_steps(both: dict[str, Path]) -> None:
    trace = replace(read_trace(both["kineto"]), steps=(HostSpan("ProfilerStep#1", 10_000, 70_000, "7"),))
    (gpu,) = _gpus(trace)
    assert (gpu.computing, gpu.idle) == (1.0, 0.0)


def test_kernels_of_two_streams_are_not_counted_twice_and_devices_are_apart() -> None:
    kernels = (KernelSpan("a", 0, 80, 0, 1), KernelSpan("b", 20, 80, 0, 2), KernelSpan("c", 0, 25, 1, 1))
    first, second = _gpus(Trace("x", "kineto", kernels=kernels))
    assert (first.computing, second.computing) == (1.0, 0.25)
    assert second.causes["no work"] == 0.75


def test_a_trace_of_a_cpu_has_no_gpus() -> None:
    assert _gpus(Trace("x", "kineto")) == []
