from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.profiling.steps import (
    BY_KERNELS,
    BY_PROFILER,
    BY_RANGES,
    BY_UPDATE_KERNELS,
    BY_UPDATES,
    find_period,
    find_steps,
)
from seqfit.profiling.trace import Call, HostSpan, KernelSpan, Trace


def traced(count: int, ranges: tuple[HostSpan, ...] = (), steps: tuple[HostSpan, ...] = ()) -> Trace:
    """Steps of 1,000 ns: ten kernels of ten names, launched right before they run."""
    starts = [1000 * step + 90 * number for step in range(count) for number in range(10)]
    calls = tuple(Call("cudaLaunchKernel", start, 5, "1", n) for n, start in enumerate(starts))
    kernels = tuple(KernelSpan(f"k{n % 10}", start + 10, 50, 0, 7, n) for n, start in enumerate(starts))
    return Trace("x", "nsight", calls=calls, kernels=kernels, ranges=ranges, steps=steps)


def test_the_profilers_own_steps_come_first() -> None:
    own = tuple(HostSpan(f"ProfilerStep#{n}", 1000 * n, 1000, "1") for n in range(3))
    trace = find_steps(traced(3, ranges=(HostSpan("step", 0, 10, "1"), HostSpan("step", 20, 10, "1")), steps=own))
    assert (trace.step_count, trace.steps_by) == (3, BY_PROFILER)


@pytest.mark.parametrize("name", ["step", "train_step {}", "Step #{}", "iteration {}", "training/step_{}"])
def test_ranges_named_like_a_step_are_steps_and_last_until_the_next(name: str) -> None:
    ranges = tuple(HostSpan(name.format(n), 1000 * n, 700, "1") for n in range(4))
    trace = find_steps(traced(4, ranges))
    assert (trace.step_count, trace.steps_by) == (4, BY_RANGES)
    assert trace.step_seconds == pytest.approx(1e-6)


@pytest.mark.parametrize("name", ["optimizer_zero_step", "scheduler.step", "data_step", "eval_step", "zero_grad_step"])
def test_parts_of_a_step_are_no_steps(name: str) -> None:
    ranges = tuple(HostSpan(name, 500 * n, 100, "1") for n in range(8))
    assert find_steps(traced(4, ranges)).steps_by == BY_KERNELS


def test_a_step_ends_with_its_update() -> None:
    ranges = tuple(HostSpan("Optimizer.step#AdamW.step", 1000 * n + 900, 100, "1") for n in range(4))
    trace = find_steps(traced(4, ranges))
    assert (trace.step_count, trace.steps_by) == (4, BY_UPDATES)
    assert trace.step_seconds == pytest.approx(1e-6, rel=0.1)


def test_a_range_named_optimizer_ends_a_step() -> None:
    ranges = tuple(HostSpan("optimizer", 1000 * n + 900, 100, "1") for n in range(4))
    assert find_steps(traced(4, ranges)).steps_by == BY_UPDATES


def launched(names: list[str]) -> Trace:
    """Kernels of 10 us, all launched at once, as an export without ranges has them."""
    calls = tuple(Call("cudaLaunchKernel", 100 * n, 50, "1", n) for n in range(len(names)))
    kernels = tuple(KernelSpan(name, 10_000 * n + 1000, 10_000, 0, 7, n) for n, name in enumerate(names))
    return find_steps(Trace("x", "nsight", calls=calls, kernels=kernels))


FORWARD = ["embed", *["gemm", "softmax"] * 8, "loss"]
BACKWARD = ["d_loss", *["d_softmax", "d_gemm"] * 16, "d_embed"]


@pytest.mark.parametrize(("update", "by"), [("FusedAdam", BY_UPDATE_KERNELS), ("x", BY_KERNELS)])
def test_an_evaluation_between_two_steps_does_not_hide_them(update: str, by: str) -> None:
    step = [*FORWARD, *BACKWARD, *[update] * 3]
    trace = launched([*step * 3, *FORWARD * 5, *step * 3])
    assert (trace.step_count, trace.steps_by) == (6 if update == "FusedAdam" else 5, by)
    usual, longest = len(step) * 10e-6, (len(step) + 5 * len(FORWARD)) * 10e-6
    assert trace.step_seconds == pytest.approx(usual, rel=0.02)
    assert max(b - a for a, b in trace.device_steps) / 1e9 == pytest.approx(longest, rel=0.02)


@pytest.mark.parametrize("update", ["FusedAdam", "x"])
def test_one_step_is_not_divided_into_its_layers(update: str) -> None:
    assert launched([*FORWARD, *BACKWARD, update]).steps_by == ""


def test_first_steps_that_take_memory_from_the_driver_are_left_out() -> None:
    trace = traced(8, steps=tuple(HostSpan(f"ProfilerStep#{n}", 1000 * n, 1000, "1") for n in range(8)))
    mallocs = tuple(Call("cudaMalloc", 1000 * step + 5 * n, 1, "1") for step in range(2) for n in range(20))
    trace = find_steps(replace(trace, calls=(*trace.calls, *mallocs)))
    assert trace.step_count == 6
    assert trace.steps[0].name == "ProfilerStep#2"


def test_without_any_mark_the_sequence_of_kernels_repeats() -> None:
    trace = find_steps(traced(5))
    assert (trace.step_count, trace.steps_by) == (5, BY_KERNELS)


def test_a_trace_that_does_not_repeat_has_no_steps() -> None:
    trace = traced(1)
    assert find_steps(trace).steps_by == ""


def test_layers_inside_a_step_are_no_steps() -> None:
    step = ["embed", *["attention", "mlp", "norm", "add"] * 12, "head", "loss", *["d_mlp", "d_attention"] * 12, "adam"]
    assert find_period(step * 3) == len(step)


def test_some_names_may_differ_from_step_to_step() -> None:
    step = [f"k{n}" for n in range(100)]
    other = [*step[:50], "another", *step[51:]]
    assert find_period([*step, *other, *step]) == 100


def test_a_host_that_is_ahead_does_not_make_the_steps_short() -> None:
    """All launched at once, and 10 us of kernels per step: the device's steps count."""
    calls = tuple(Call("cudaLaunchKernel", 10 * n, 5, "1", n) for n in range(4))
    kernels = tuple(KernelSpan("k", 10_000 * n + 50, 10_000, 0, 7, n) for n in range(4))
    steps = tuple(HostSpan(f"ProfilerStep#{n}", 10 * n, 10, "1") for n in range(4))
    trace = find_steps(Trace("x", "kineto", calls=calls, kernels=kernels, steps=steps))
    assert trace.step_seconds == pytest.approx(1e-5)
    assert trace.window_ns == (0, 40_050)


def test_one_long_step_does_not_change_the_usual_one() -> None:
    own = tuple(HostSpan(f"ProfilerStep#{n}", 1000 * n, 1000, "1") for n in range(5))
    own = (*own[:4], replace(own[4], duration_ns=50_000))
    trace = find_steps(Trace("x", "kineto", steps=own))
    assert trace.step_seconds == pytest.approx(1e-6)
