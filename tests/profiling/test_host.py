from __future__ import annotations

import pytest

from seqfit.profiling.host import HostTimeline
from seqfit.profiling.trace import Call, Copy, HostSpan, KernelSpan, Op, Trace

CALLS = (
    Call("cudaLaunchKernel", 0, 10, "1", 1),
    Call("cudaStreamSynchronize", 20, 80, "1", 2),
    Call("cudaMemcpyAsync", 900_000, 10, "1", 3),
    Call("cudaLaunchKernel", 900_020, 10, "1", 4),
)
KERNELS = (KernelSpan("k", 5, 90, 0, 7, 1), KernelSpan("k", 900_030, 100, 0, 7, 4))
COPIES = (Copy("HtoD", 900_005, 10, 0, 7, 3, 4096),)


def on_gpu(*ranges: HostSpan, **fields: tuple[HostSpan, ...]) -> Trace:
    return Trace("x", "kineto", calls=CALLS, kernels=KERNELS, copies=COPIES, ranges=ranges, **fields)  # type: ignore[arg-type]


def test_an_interval_is_divided_among_activities_and_nothing_is_lost() -> None:
    host = HostTimeline(on_gpu(HostSpan("enumerate(DataLoader)#x", 200, 800_000, "1")))
    charged = host.charge((0, 900_040))
    assert sum(charged.values()) == 900_040
    assert charged["loading data"] == 800_000
    assert charged["waiting in a sync"] == 80
    assert charged["copying"] == 10


def test_a_pause_before_the_batch_is_copied_is_a_loader_that_nobody_named() -> None:
    host = HostTimeline(on_gpu())
    assert host.loading_is_inferred
    assert host.charge((100, 900_000)) == {"loading data": 899_900}


def test_a_named_loader_is_not_inferred() -> None:
    assert not HostTimeline(on_gpu(HostSpan("load_data", 200, 10, "1"))).loading_is_inferred


def test_a_loaders_own_thread_is_no_reason() -> None:
    host = HostTimeline(on_gpu(HostSpan("data_wait", 200, 800_000, "99"), HostSpan("data_wait", 150, 1, "1")))
    assert host.charge((200, 800_000)) == {"Python": 799_800}


@pytest.mark.parametrize(
    ("name", "activity"),
    [
        ("evaluate", "evaluating"),
        ("eval_step", "evaluating"),
        ("transformers/trainer.py(4100): evaluation_loop", "evaluating"),
        ("save_checkpoint", "saving"),
        ("transformers/trainer.py(3300): _save_checkpoint", "saving"),
        ("module: checkpoint_wrapper", "Python"),
        ("torch/utils/data/dataloader.py(700): __next__", "loading data"),
        ("retrieval.py(3): retrieve", "Python"),
    ],
)
def test_ranges_and_functions_are_known_by_their_names(name: str, activity: str) -> None:
    marks = (HostSpan("data_wait", 150, 1, "1"), HostSpan(name, 200_000, 500_000, "1"))
    assert HostTimeline(on_gpu(*marks)).charge((300_000, 400_000)) == {activity: 100_000}


def test_the_place_is_the_function_itself_and_not_its_caller() -> None:
    frames = (
        HostSpan("train.py(1): main", 0, 1000, "1"),
        HostSpan("torch/utils/data/dataloader.py(700): __next__", 100, 800, "1"),
        HostSpan("data/rows.py(12): __getitem__", 150, 600, "1"),
        HostSpan("<built-in function sleep>", 160, 100, "1"),
    )
    steps = (HostSpan("ProfilerStep#0", 0, 1000, "1"),)
    trace = Trace("x", "kineto", ops=(Op("aten::mm", 950, 10, "1"),), frames=frames, steps=steps)
    assert HostTimeline(trace).find_place("loading data", (0, 1000)) == "data/rows.py(12): __getitem__"


def test_on_a_cpu_operators_are_the_computing() -> None:
    steps = (HostSpan("ProfilerStep#0", 0, 100, "1"),)
    host = HostTimeline(Trace("x", "kineto", ops=(Op("aten::mm", 10, 60, "1"),), steps=steps))
    assert host.total((0, 100)) == {"computing": 0.6, "Python": 0.4}


def test_on_a_cpu_the_loop_waits_for_gloos_own_thread() -> None:
    steps = (HostSpan("ProfilerStep#0", 0, 100, "1"),)
    ranges = (HostSpan("gloo:all_reduce", 50, 50, "9"),)  # the first 20 are hidden
    host = HostTimeline(Trace("x", "kineto", ops=(Op("aten::mm", 10, 60, "1"),), steps=steps, ranges=ranges))
    assert host.total((0, 100)) == {"computing": 0.6, "communicating": 0.3, "Python": 0.1}
