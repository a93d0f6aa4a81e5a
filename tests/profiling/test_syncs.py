from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.profiling.host import UNKNOWN, rank_syncs
from seqfit.profiling.readers import read_trace
from seqfit.profiling.trace import HostSpan, Op, Trace

FRAMES = (
    HostSpan("/home/me/project/seqfit/training/log.py(150): _finish", 0, 100, "1"),
    HostSpan("torch/_tensor.py(70): wrapped", 5, 80, "1"),
    HostSpan("<built-in method item of Tensor object at 0x7f>", 10, 60, "1"),
)
READ = Op("aten::_local_scalar_dense", 20, 5, "1")


def test_a_wait_is_put_down_to_the_users_function_not_to_torchs() -> None:
    steps = (HostSpan("ProfilerStep#1", 0, 50, "1"), HostSpan("ProfilerStep#2", 50, 50, "1"))
    (row,) = rank_syncs(Trace("x", "kineto", ops=(READ,), frames=FRAMES, steps=steps))
    assert row.place == "seqfit/training/log.py(150): _finish"
    assert (row.calls_per_step, row.seconds_per_step, row.caller_seconds_per_step) == (0.5, 2.5e-9, 1e-8)


def test_a_function_that_waits_twice_takes_its_time_once() -> None:
    (row,) = rank_syncs(Trace("x", "kineto", ops=(READ, replace(READ, start_ns=40)), frames=FRAMES))
    assert (row.calls_per_step, row.caller_seconds_per_step) == (2, 2e-8)


def test_what_a_function_calls_is_not_the_cost_of_its_reading() -> None:
    """A script's main() that reads the loss once runs for the whole step."""
    frames = (
        HostSpan("train.py(5): main", 0, 1000, "1"),
        HostSpan("nn.Module: T5_0", 10, 400, "1"),
        HostSpan("torch/_tensor.py(70): backward", 420, 500, "1"),
        HostSpan("<built-in method item of Tensor object at 0x7f>", 950, 20, "1"),
    )
    (row,) = rank_syncs(Trace("x", "kineto", ops=(replace(READ, start_ns=955),), frames=frames))
    assert row.caller_seconds_per_step == pytest.approx(1e-7)


def test_a_wait_inside_another_is_one_wait() -> None:
    outer = Op("aten::is_nonzero", 10, 30, "1")
    assert [row.what for row in rank_syncs(Trace("x", "kineto", ops=(outer, READ)))] == ["aten::is_nonzero"]


def test_the_optimizers_count_of_steps_is_no_wait_on_a_cpu() -> None:
    updating = (HostSpan("Optimizer.step#AdamW.step", 0, 100, "1"),)
    assert rank_syncs(Trace("x", "kineto", ops=(READ,), ranges=updating)) == []


def test_on_a_gpu_only_calls_that_wait_count(both: dict[str, Path]) -> None:
    (row,) = rank_syncs(read_trace(both["nsight"]))
    assert (row.place, row.what, row.seconds_per_step) == (UNKNOWN, "cudaStreamSynchronize", 6e-5)
