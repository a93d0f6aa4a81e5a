"""What memory was taken for, over the time of a step: a timeline by category, from allocations alone.

In: a `Trace` taken with profile_memory. Out: a few points in time, each with the bytes held by category. What a block
of memory was for shows by when it was taken and when it was given back:

    taken in      given back in           category
    forward       backward or later       activations
    backward      later than backward     gradients
    optimizer     never, or later         optimizer
    anywhere      the same phase          temporary
    outside       -                       batches and rest

What was there before the first event (weights, states of the optimizer) is not in the trace of a CPU and one constant
in that of a GPU (`kept_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from seqfit.profile.phases import BACKWARD, FORWARD, OPTIMIZER, OUTSIDE, Phases
from seqfit.profile.trace import Allocation, Trace

CATEGORIES = ("activations", "gradients", "optimizer", "temporary", "batches and rest")
_POINTS = 60


@dataclass(frozen=True)
class Moment:
    """What is held at one time."""

    seconds: float  # since the first allocation
    held_bytes: dict[str, int]  # by category


@dataclass(frozen=True)
class MemoryTimeline:
    """A profile's memory."""

    on_device: bool
    kept_bytes: int  # held before the trace began, and through it
    peak_bytes: int  # the most held above that
    peak_by_category: dict[str, int]
    moments: list[Moment]


def build_timeline(trace: Trace, phases: Phases) -> MemoryTimeline | None:
    """None where the trace has no allocations. A GPU's memory is shown where there is one, else the host's."""
    on_device = any(event.on_device for event in trace.allocations)
    events = sorted((e for e in trace.allocations if e.on_device == on_device), key=lambda event: event.time_ns)
    if not events:
        return None
    categories = _categorise(events, phases)
    held = dict.fromkeys(CATEGORIES, 0)
    peak, at_peak = 0, dict(held)
    moments: list[Moment] = []
    every = max(len(events) // _POINTS, 1)
    for number, (event, category) in enumerate(zip(events, categories, strict=True)):
        if category is not None:
            held[category] += event.size_bytes
        total = sum(held.values())
        if total > peak:
            peak, at_peak = total, dict(held)
        if number % every == 0 or number == len(events) - 1:
            moments.append(Moment((event.time_ns - events[0].time_ns) / 1e9, dict(held)))
    kept = max(events[0].total_bytes - events[0].size_bytes, 0) if on_device else 0
    return MemoryTimeline(on_device, kept, peak, at_peak, moments)


def _categorise(events: list[Allocation], phases: Phases) -> list[str | None]:
    """The category of each event; None for the return of a block that was taken before the trace began."""
    categories: list[str | None] = [None] * len(events)
    taken: dict[int, int] = {}  # address -> number of the event that took it
    for number, event in enumerate(events):
        if event.size_bytes > 0:
            taken[event.address] = number
            categories[number] = _category(phases.at(event.time_ns), None)
        elif event.address in taken:
            taker = taken.pop(event.address)
            category = _category(phases.at(events[taker].time_ns), phases.at(event.time_ns))
            categories[taker] = categories[number] = category
    return categories


def _category(taken_in: str, returned_in: str | None) -> str:
    if taken_in == OUTSIDE:
        return "batches and rest"
    if taken_in == returned_in:
        return "temporary"
    return {FORWARD: "activations", BACKWARD: "gradients", OPTIMIZER: "optimizer"}[taken_in]
