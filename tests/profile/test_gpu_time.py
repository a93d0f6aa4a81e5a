from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.profile.gpu_time import measure_gpu_time
from seqfit.profile.load import read_trace
from seqfit.profile.trace import HostSpan, Kernel, Trace

TENTH_OF_A_PER_CENT = 0.001


@pytest.mark.parametrize("kind", ["kineto", "nsight"])
def test_busy_idle_and_its_causes_add_up_to_the_window(both: dict[str, Path], kind: str) -> None:
    (gpu,) = measure_gpu_time(read_trace(both[kind]))
    assert gpu.computing == pytest.approx(100 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.copying == pytest.approx(10 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.idle == pytest.approx(40 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.causes["launch"] == pytest.approx(20 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.causes["host sync"] == pytest.approx(20 / 150, abs=TENTH_OF_A_PER_CENT)
    assert sum(gpu.causes.values()) == pytest.approx(gpu.idle)


def test_the_part_of_a_gap_in_which_the_loop_waits_for_data_is_its_own(both: dict[str, Path]) -> None:
    trace = replace(read_trace(both["kineto"]), ranges=(HostSpan("data_wait", 80_000, 15_000, "7"),))
    (gpu,) = measure_gpu_time(trace)
    assert gpu.causes["data wait"] == pytest.approx(15 / 150, abs=TENTH_OF_A_PER_CENT)
    assert gpu.causes["host sync"] == pytest.approx(5 / 150, abs=TENTH_OF_A_PER_CENT)


def test_a_kernel_that_was_queued_before_the_gap_is_the_devices_matter(both: dict[str, Path]) -> None:
    trace = read_trace(both["kineto"])
    calls = tuple(replace(call, start_ns=85_000) if call.correlation == 5 else call for call in trace.calls)
    (gpu,) = measure_gpu_time(replace(trace, calls=calls))
    assert gpu.causes["device"] == pytest.approx(10 / 150, abs=TENTH_OF_A_PER_CENT)


def test_only_the_steps_count_where_there_are_steps(both: dict[str, Path]) -> None:
    trace = replace(read_trace(both["kineto"]), steps=(HostSpan("ProfilerStep#1", 10_000, 70_000, "7"),))
    (gpu,) = measure_gpu_time(trace)
    assert (gpu.computing, gpu.idle) == (1.0, 0.0)


def test_kernels_of_two_streams_are_not_counted_twice_and_devices_are_apart() -> None:
    kernels = (Kernel("a", 0, 80, 0, 1), Kernel("b", 20, 80, 0, 2), Kernel("c", 0, 25, 1, 1))
    first, second = measure_gpu_time(Trace("x", "kineto", kernels=kernels))
    assert (first.computing, second.computing) == (1.0, 0.25)
    assert second.causes["no work"] == 0.75


def test_a_trace_of_a_cpu_has_no_gpus() -> None:
    assert measure_gpu_time(Trace("x", "kineto")) == []
