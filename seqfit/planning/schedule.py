"""When the ranks of a step communicate, and how much of it their work hides: a schedule from one GPU's trace. No torch.

In: a model's units (its blocks, and the rest) in the order of the forward, with what each computes and sends, and the
link. Out: seconds that a rank waits. Communication goes through the link in the order in which it is started.

    ddp     the gradients of 25 MiB are all-reduced as soon as the last micro-batch's backward has produced them
    fsdp    weights of a unit are gathered while the one before computes, in the forward and again in the backward;
            its gradients are reduced and scattered behind its backward
    offload the same, with each rank's shard copied from the host before, and its share of the gradients to it after
    pipeline stages wait for the first micro-batch to arrive, and for the last one's gradient to come back

    fsdp, backward of three blocks that compute for 3 seconds each, gathers of 1 and scatters of 2 seconds:
    compute   -  3  3  3  2  2  2  1  1  1  -  -      waits 1 s for the first gather
    link      g3 g2 -  -  g1 s3 s3 s2 s2 -  s1 s1     and 2 s for the last scatter

The order on each of the two is fixed, so a slower link never makes a step shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BUCKET_BYTES = 25 * 2**20  # of DDP: gradients that are sent together
_BACKWARD = 2 / 3  # of a block's work where it was not traced: two products for each of the forward's

Seconds = Callable[[float], float]  # that so many bytes take


@dataclass(frozen=True)
class ModelUnit:
    """What FSDP gathers at once: a block, or what no block holds (the first one, which stays until the backward)."""

    weight_bytes: int  # as they are sent
    gradient_bytes: int
    stored_bytes: int = 0  # of the weights, as they are stored: what offload moves


@dataclass(frozen=True)
class Segment:
    """Work on one unit without a break; shares of a micro-batch's seconds."""

    unit: int
    forward: float
    backward: float
    gradient_bytes: int  # that are final when its backward ends


@dataclass(frozen=True)
class UnitSchedule:
    units: tuple[ModelUnit, ...]
    segments: tuple[Segment, ...]  # in the order of the forward; the first unit computes at both ends

    def slowest_stage(self, stages: int) -> float:
        """The largest share of a micro-batch's seconds that a pipeline's stage has: blocks are not split."""
        return split_evenly([segment.forward + segment.backward for segment in self.segments], stages)


def build_even_schedule(blocks: int, weight_bytes: int, gradient_bytes: int, stored_bytes: int) -> UnitSchedule:
    """Of a model that was not traced: units of one size."""
    unit = ModelUnit(weight_bytes // blocks, gradient_bytes // blocks, stored_bytes // blocks)
    share = 1 / blocks
    segments = [Segment(n, (1 - _BACKWARD) * share, _BACKWARD * share, unit.gradient_bytes) for n in range(blocks)]
    return UnitSchedule((unit,) * blocks, tuple(segments))


def wait_for_buckets(schedule: UnitSchedule, seconds: float, reduce: Seconds) -> float:
    """DDP's, behind the backward of a step's last micro-batch, which takes so many seconds in all."""
    produced, now, waiting_bytes, link_free = 0.0, 0.0, 0.0, 0.0
    for segment in reversed(schedule.segments):
        start, now = now, now + segment.backward * seconds
        produced += segment.gradient_bytes
        left = waiting_bytes + segment.gradient_bytes
        while left >= BUCKET_BYTES:
            left -= BUCKET_BYTES
            done = 1 - left / max(segment.gradient_bytes, 1)  # of the segment, when the bucket is full
            link_free = max(link_free, start + max(done, 0.0) * (now - start)) + reduce(BUCKET_BYTES)
        waiting_bytes = left
    if waiting_bytes:
        link_free = max(link_free, now) + reduce(waiting_bytes)
    return max(0.0, link_free - now)


@dataclass(frozen=True)
class ShardCosts:
    """Seconds of what FSDP does with so many bytes."""

    gather: Seconds
    scatter: Seconds
    load: Seconds  # from the host; 0 without offload
    store: Seconds
    shares_link: bool = False  # the way to the host is the way to the other ranks


def step_sharded(schedule: UnitSchedule, seconds: float, costs: ShardCosts) -> float:
    """Seconds of one micro-batch that takes so many on one GPU.

    A gather is started when the unit before begins to compute, which is before that unit's scatter.
    """
    units, segments, lanes = schedule.units, schedule.segments, _Lanes(costs)
    first: dict[int, int] = {}  # place of each unit in the forward; in the backward it is the last one
    for place, segment in enumerate(segments):
        first.setdefault(segment.unit, place)
    begins = ends = 0.0
    for place, segment in enumerate(segments):
        arrival = lanes.gather(units[segment.unit], begins) if first[segment.unit] == place else 0.0
        begins = max(ends, arrival)
        ends = begins + segment.forward * seconds
    begins, arrival = ends, 0.0
    for place in range(len(segments) - 1, -1, -1):
        segment = segments[place]
        if place == len(segments) - 1:
            arrival = lanes.gather_again(segment.unit, units, begins)
        begins = max(ends, arrival)
        arrival = lanes.gather_again(segments[place - 1].unit, units, begins) if place else 0.0
        ends = begins + segment.backward * seconds
        if first[segment.unit] == place:
            lanes.scatter(units[segment.unit], ends)
    return max(ends, lanes.free)


class _Lanes:
    """The link, and the way to the host in each direction."""

    def __init__(self, costs: ShardCosts) -> None:
        self._costs = costs
        self._link = self._from_host = self._to_host = 0.0

    @property
    def free(self) -> float:
        return max(self._link, self._to_host)

    def gather(self, unit: ModelUnit, start: float) -> float:
        """When the unit's weights are there."""
        loaded = max(self._from_host, start, self._link if self._costs.shares_link else 0.0)
        self._from_host = loaded + self._costs.load(unit.stored_bytes)
        self._link = max(self._link, self._from_host) + self._costs.gather(unit.weight_bytes)
        return self._link

    def gather_again(self, number: int, units: Sequence[ModelUnit], start: float) -> float:
        """For the backward; the first unit is still there, where it is not the only one."""
        return 0.0 if number == 0 and len(units) > 1 else self.gather(units[number], start)

    def scatter(self, unit: ModelUnit, start: float) -> None:
        if unit.gradient_bytes == 0:  # frozen
            return
        self._link = max(self._link, start) + self._costs.scatter(unit.gradient_bytes)
        self._to_host = max(self._to_host, self._link) + self._costs.store(unit.gradient_bytes)
        if self._costs.shares_link:
            self._link = self._to_host


def count_collectives(schedule: UnitSchedule) -> int:
    """Of FSDP in one micro-batch: the first unit is gathered once, a frozen one is not scattered."""
    units = schedule.units
    gathers = 2 * len(units) - (len(units) > 1)
    return gathers + sum(unit.gradient_bytes > 0 for unit in units)


def pipeline_seconds(slowest: float, stages: int, micro_batches: float, send: float) -> float:
    """Of a step, where the slowest stage's forward and backward of a micro-batch take so many seconds.

    `send`: what states take from one stage to the next. They are sent while the next micro-batch computes; nothing
    hides the first and the last one's.
    """
    return (micro_batches + stages - 1) * max(slowest, 2 * send) + 2 * (stages - 1) * send


def split_evenly(work: Sequence[float], stages: int) -> float:
    """The largest of so many consecutive parts, as small as it can be."""
    low, high = max(max(work), math.fsum(work) / stages), math.fsum(work)
    for _ in range(40):
        middle = (low + high) / 2
        parts, filled = 1, 0.0
        for item in work:
            if filled + item > middle * (1 + 1e-9):
                parts, filled = parts + 1, 0.0
            filled += item
        low, high = (low, middle) if parts <= stages else (middle, high)
    return high
