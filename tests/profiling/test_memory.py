from __future__ import annotations

from seqfit.profiling.host import HostTimeline
from seqfit.profiling.tables import MemoryTimeline, Phases, build_timeline
from seqfit.profiling.trace import Allocation, HostSpan, Op, Trace

RANGES = (HostSpan("module: (loss)", 0, 100, "1"), HostSpan("Optimizer.step#AdamW.step", 200, 50, "1"))
OPS = (Op("autograd::engine::evaluate_function: MmBackward0", 100, 100, "1", 1, True),)


def event(time_ns: int, size_bytes: int, address: int, on_device: bool = False, total: int = 0) -> Allocation:
    return Allocation(time_ns, size_bytes, address, on_device, total)


EVENTS = (
    event(10, 1000, 1),  # taken in the forward, returned in the backward: activations
    event(20, 500, 2),  # freed in the forward: temporary
    event(30, -500, 2),
    event(120, 300, 3),  # taken in the backward, returned behind the step: gradients
    event(150, -1000, 1),
    event(210, 200, 4),  # taken by the optimizer and kept
    event(260, -300, 3),
    event(270, 64, 5),
    event(280, -7777, 99),  # taken before the trace began
)


def timeline_of(trace: Trace) -> MemoryTimeline | None:
    return build_timeline(trace, Phases(trace, HostTimeline(trace)))


def test_blocks_are_categorised_by_when_they_are_allocated_and_freed() -> None:
    timeline = timeline_of(Trace("x", "kineto", ranges=RANGES, ops=OPS, allocations=EVENTS))
    assert timeline is not None
    assert timeline.peak_bytes == 1500
    assert {name: held for name, held in timeline.peak_by_category.items() if held} == {
        "activations": 1000,
        "temporaries": 500,
    }
    last = timeline.moments[-1].held_bytes
    assert {name: held for name, held in last.items() if held} == {"optimizer state": 200, "batches and other": 64}


def test_gradients_are_there_between_backward_and_update() -> None:
    timeline = timeline_of(Trace("x", "kineto", ranges=RANGES, ops=OPS, allocations=EVENTS))
    assert timeline is not None
    assert max(moment.held_bytes["gradients"] for moment in timeline.moments) == 300


def test_of_a_gpus_trace_the_gpus_memory_is_shown_and_what_it_held_before() -> None:
    events = (event(10, 64, 1), event(20, 100, 2, True, 1100), event(30, -100, 2, True, 1000))
    timeline = timeline_of(Trace("x", "kineto", ranges=RANGES, allocations=events))
    assert timeline is not None
    assert (timeline.on_device, timeline.kept_bytes, timeline.peak_bytes) == (True, 1000, 100)


def test_a_trace_without_allocations_has_no_timeline() -> None:
    assert timeline_of(Trace("x", "nsight")) is None


def test_a_foreign_trace_without_ranges_of_modules_has_activations_too() -> None:
    ops = (Op("aten::mm", 0, 100, "1", 1), *OPS)
    timeline = timeline_of(Trace("x", "kineto", ranges=RANGES[1:], ops=ops, allocations=EVENTS))
    assert timeline is not None
    assert timeline.peak_by_category["activations"] == 1000
