from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from seqfit.planning.allocator import (
    Allocate,
    AllocationFailed,
    CachingAllocator,
    Free,
    replay,
    round_request,
    segment_bytes,
)

KIB, MIB = 1024, 1024**2


def filled(*sizes: int, capacity_bytes: int | None = None) -> CachingAllocator:
    """With requests 0, 1, ... of these sizes."""
    allocator = CachingAllocator(capacity_bytes)
    for key, size in enumerate(sizes):
        allocator.allocate(key, size)
    return allocator


@pytest.mark.parametrize(("requested", "rounded"), [(1, 512), (512, 512), (513, 1024), (1_000_000, 1_000_448)])
def test_a_request_is_rounded_up_to_512_bytes(requested: int, rounded: int) -> None:
    assert round_request(requested) == rounded
    assert filled(requested).allocated_bytes == rounded


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_a_segment_is_2_mib_20_mib_or_the_request_rounded_to_2_mib(size: int, segment: int) -> None:
    assert segment_bytes(size) == segment
    assert filled(size).reserved_bytes == segment


def test_nothing_is_held_for_a_storage_of_no_bytes() -> None:
    allocator = CachingAllocator(0)
    allocator.allocate(1, 0)
    allocator.free(1)
    assert (allocator.allocated_bytes, allocator.peak_reserved_bytes) == (0, 0)


def test_the_example_of_the_module() -> None:
    allocator = filled(3 * MIB, 12 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(3, 6 * MIB)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (21 * MIB, 40 * MIB)


def test_small_and_large_requests_never_share_a_segment() -> None:
    assert filled(3 * MIB, 512).reserved_bytes == 22 * MIB


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    allocator = filled(14 * MIB, 12 * MIB, 16 * MIB)
    for key in range(3):
        allocator.free(key)
    allocator.allocate(3, 11 * MIB)  # into the 12 MiB; with the 1 MiB left over, which is not more than 1 MiB
    assert allocator.allocated_bytes == 12 * MIB
    allocator.allocate(4, 16 * MIB)
    allocator.allocate(5, 14 * MIB)
    assert allocator.reserved_bytes == 42 * MIB


def test_a_small_rest_of_512_bytes_is_split_off() -> None:
    allocator = filled(2 * KIB, MIB, MIB - 2 * KIB)  # the whole segment
    allocator.free(0)
    allocator.allocate(3, 1536)
    assert allocator.allocated_bytes == 2 * MIB - 512
    allocator.allocate(4, 1)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (2 * MIB, 2 * MIB)


@pytest.mark.parametrize(("requested", "held"), [(19 * MIB, 20 * MIB), (19 * MIB - 512, 19 * MIB - 512)])
def test_a_large_rest_is_split_off_from_more_than_1_mib_on(requested: int, held: int) -> None:
    allocator = filled(20 * MIB)
    allocator.free(0)
    allocator.allocate(1, requested)
    assert allocator.allocated_bytes == held


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_freed_neighbours_join_in_any_order(order: tuple[int, ...]) -> None:
    allocator = filled(6 * MIB, 6 * MIB, 8 * MIB)
    for key in order:
        allocator.free(key)
    allocator.allocate(3, 20 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_blocks_of_two_segments_never_join() -> None:
    allocator = filled(12 * MIB, 12 * MIB)
    allocator.free(0)
    allocator.free(1)
    allocator.allocate(2, 24 * MIB)
    assert allocator.reserved_bytes == 48 * MIB


def test_peaks_stay_after_everything_is_freed() -> None:
    allocator = filled(3 * MIB, 30 * MIB)
    allocator.free(0)
    allocator.free(1)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 50 * MIB)
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (33 * MIB, 50 * MIB)


def test_a_full_gpu_gets_back_the_segments_that_are_entirely_free() -> None:
    allocator = filled(30 * MIB, 12 * MIB, 6 * MIB, capacity_bytes=64 * MIB)  # segments of 30, 12 and 20 MiB
    allocator.free(0)
    allocator.allocate(3, 32 * MIB)
    assert (allocator.reserved_bytes, allocator.cache_releases) == (64 * MIB, 1)
    assert allocator.peak_reserved_bytes == 64 * MIB


def test_a_segment_with_one_live_block_stays_and_the_request_fails() -> None:
    allocator = filled(5 * MIB, 5 * MIB, capacity_bytes=32 * MIB)
    allocator.free(0)
    with pytest.raises(
        AllocationFailed, match=r"14\.0 MiB requested, 5\.0 MiB in use and 20\.0 MiB reserved of 32\.0 MiB"
    ) as caught:
        allocator.allocate(2, 14 * MIB + 512)
    assert (caught.value.key, caught.value.requested_bytes) == (2, 14 * MIB + 512)


def test_what_was_there_stays_after_an_out_of_memory() -> None:
    allocator = CachingAllocator(40 * MIB)
    allocator.allocate(0, 18 * MIB)
    with pytest.raises(AllocationFailed):
        allocator.allocate(1, 30 * MIB)
    allocator.free(0)
    allocator.allocate(1, 30 * MIB)
    assert allocator.allocated_bytes == 30 * MIB


def test_a_key_in_use_cannot_be_allocated_again() -> None:
    with pytest.raises(AssertionError, match="key 0 is in use"):
        filled(512).allocate(0, 512)


def random_events(count: int, seed: int, largest_bits: float = 25) -> Iterator[Allocate | Free]:
    """Sizes from a few bytes to `2**largest_bits`, a few hundred alive at once."""
    numbers = random.Random(seed)
    live: list[int] = []
    for key in range(count):
        if live and numbers.random() < (0.6 if len(live) > 200 else 0.3):
            yield Free(live.pop(numbers.randrange(len(live))))
        else:
            live.append(key)
            yield Allocate(key, int(2 ** numbers.uniform(0, largest_bits)))


def check_invariants(allocator: CachingAllocator) -> None:
    """No overlap, all neighbours agree, free ones are joined, and the sums are the counters."""
    live = [block for block in allocator._live.values() if block is not None]
    free = [block for pool in (allocator._small, allocator._large) for _, _, block in pool.free]
    blocks = sorted([*live, *free], key=lambda block: block.address)
    for block, following in pairwise(blocks):
        assert block.address + block.size <= following.address
    for block in blocks:
        if block.next is not None:
            assert block.next.previous is block
            assert block.address + block.size == block.next.address
            assert not (block.state == block.next.state and block not in live)
    assert sum(block.size for block in live) == allocator.allocated_bytes
    assert sum(block.size for block in [*live, *free]) == allocator.reserved_bytes
    for pool in (allocator._small, allocator._large):
        assert pool.free == sorted(pool.free, key=lambda entry: entry[:2])


@pytest.mark.parametrize("capacity_bytes", [None, 400 * MIB])
def test_blocks_never_overlap_and_the_sums_hold(capacity_bytes: int | None) -> None:
    allocator = CachingAllocator(capacity_bytes)
    refused = set()
    for number, event in enumerate(random_events(6000, seed=1)):
        if isinstance(event, Allocate):
            try:
                allocator.allocate(event.key, event.size_bytes)
            except AllocationFailed:
                refused.add(event.key)
        elif event.key not in refused:
            allocator.free(event.key)
        if number % 50 == 0:
            check_invariants(allocator)
    assert allocator.peak_reserved_bytes >= allocator.peak_allocated_bytes
    assert bool(refused) == bool(allocator.cache_releases) == (capacity_bytes is not None)


def test_a_gpu_as_large_as_the_peak_is_large_enough_and_one_smaller_than_the_blocks_is_not() -> None:
    events = list(random_events(3000, seed=2))
    free = replay(events)
    enough = replay(events, free.peak_reserved_bytes)
    assert (enough.peak_allocated_bytes, enough.peak_reserved_bytes, enough.cache_releases, enough.out_of_memory) == (
        free.peak_allocated_bytes,
        free.peak_reserved_bytes,
        free.cache_releases,
        free.out_of_memory,
    )
    short = replay(events, free.peak_allocated_bytes - 1)
    assert short.out_of_memory is not None
    assert short.cache_releases >= 1


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_what_does_not_fit_is_replayed_to_the_end_and_would_fit_a_gpu_of_a_tenth_more_than_it_needed(seed: int) -> None:
    events = list(random_events(3000, seed=seed))
    free = replay(events)
    for share in (0.2, 0.6, 0.9):
        short = replay(events, int(share * free.peak_allocated_bytes))
        assert short.out_of_memory is not None
        assert free.peak_allocated_bytes <= short.peak_reserved_bytes <= 1.1 * free.peak_reserved_bytes
        enough = replay(events, int(1.1 * short.peak_reserved_bytes))  # at most 1.07 in ten random traces
        assert enough.out_of_memory is None


def test_200_000_events_take_well_under_a_few_seconds() -> None:
    events = list(random_events(200_000, seed=3, largest_bits=27))
    start = time.process_time()
    replay(events)
    assert time.process_time() - start < 3  # 0.3 s on an idle core; the rest is for a busy machine
