"""A model of torch's CUDA caching allocator: requests come in, what the GPU must hold for them goes out.

torch does not return freed memory to the GPU. It allocates *segments*, splits them into *blocks*, and keeps free blocks
for later requests. So a step needs more memory than its tensors: `reserved_bytes` (segments) is at least
`allocated_bytes` (blocks in use). The rules are those of c10/cuda/CUDACachingAllocator with default settings:

- A request is rounded up to 512 bytes and takes the smallest free block that is large enough, the lowest address of
  equals. What is left over becomes a free block if it has 512 bytes (small pool) or more than 1 MiB (large pool);
  otherwise it stays with the block and counts as allocated.
- A freed block joins its free neighbours in the segment.
- Where no free block fits, a segment is allocated on the GPU:

      rounded request       pool     segment
      up to 1 MiB           small    2 MiB
      below 10 MiB          large    20 MiB
      10 MiB and more       large    the request, rounded up to 2 MiB

- Where the GPU has no memory left for it, all segments that are entirely free are returned; then it is out of memory.

In small numbers: `allocate(1, 3 MiB)` takes a segment of 20 MiB and leaves 17 MiB of it free; `allocate(2, 12 MiB)`
fits into those; `allocate(3, 6 MiB)` does not fit into the 5 MiB left and takes another segment: 21 MiB are allocated,
40 reserved.

Not modelled: several streams, graph pools, and what is off by default in PYTORCH_ALLOC_CONF (expandable segments).
`capacity_bytes` is what the process may reserve: the GPU's memory less the CUDA context and other processes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from seqfit.units import format_bytes

_MIB = 1024**2
ROUNDING_BYTES = 512
SMALL_REQUEST_BYTES = _MIB
SMALL_SEGMENT_BYTES = 2 * _MIB
LARGE_SEGMENT_BYTES = 20 * _MIB
_OWN_SEGMENT_BYTES = 10 * _MIB  # requests from here on get a segment of their own size
_SEGMENT_ROUNDING_BYTES = 2 * _MIB

_LIVE, _FREE = range(2)


class Allocate(NamedTuple):
    key: int
    size_bytes: int


class Free(NamedTuple):
    key: int


class AllocationFailed(Exception):
    """The GPU cannot hold a request. Not a user's error: whether a step fits is what the planner wants to know."""

    def __init__(self, key: int, requested_bytes: int, allocated_bytes: int, reserved_bytes: int, capacity_bytes: int):
        super().__init__(
            f"out of memory: {format_bytes(requested_bytes)} requested, {format_bytes(allocated_bytes)} in use and "
            f"{format_bytes(reserved_bytes)} reserved of {format_bytes(capacity_bytes)}"
        )
        self.key = key
        self.requested_bytes = requested_bytes
        self.capacity_bytes = capacity_bytes


class _Block:
    """A part of a segment, with its neighbours there."""

    __slots__ = ("address", "next", "pool", "previous", "size", "state")

    def __init__(self, pool: _Pool, address: int, size: int, state: int) -> None:
        self.pool = pool
        self.address = address
        self.size = size
        self.state = state
        self.previous: _Block | None = None
        self.next: _Block | None = None


class _Pool:
    """The free blocks for small or for large requests, sorted by size and address."""

    __slots__ = ("free", "least_remainder")

    def __init__(self, least_remainder: int) -> None:
        self.least_remainder = least_remainder  # a smaller one stays with the block
        self.free: list[tuple[int, int, _Block]] = []

    def add(self, block: _Block) -> None:
        """A block that is no longer in use, joined with its free neighbours."""
        following, previous = block.next, block.previous
        if following is not None and following.state == _FREE:
            self.remove(following)
            _absorb_next(block)
        if previous is not None and previous.state == _FREE:
            self.remove(previous)
            _absorb_next(previous)
            block = previous
        block.state = _FREE
        insort(self.free, (block.size, block.address, block))

    def remove(self, block: _Block) -> None:
        del self.free[bisect_left(self.free, (block.size, block.address))]


def _split_block(block: _Block, size: int) -> _Block:
    """Shorten a block to `size`; the rest comes back as its next neighbour, of the same state, in no list yet."""
    rest = _Block(block.pool, block.address + size, block.size - size, block.state)
    rest.previous, rest.next = block, block.next
    if rest.next is not None:
        rest.next.previous = rest
    block.next = rest
    block.size = size
    return rest


def _absorb_next(block: _Block) -> None:
    following = block.next
    assert following is not None
    block.size += following.size
    block.next = following.next
    if block.next is not None:
        block.next.previous = block


def round_request(size_bytes: int) -> int:
    """Up to a multiple of 512 bytes."""
    return -(-size_bytes // ROUNDING_BYTES) * ROUNDING_BYTES


def segment_bytes(size: int) -> int:
    """What is allocated on the GPU for a rounded request that no free block can hold."""
    if size <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < _OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // _SEGMENT_ROUNDING_BYTES) * _SEGMENT_ROUNDING_BYTES


class CachingAllocator:
    """torch's default allocator on one stream. `capacity_bytes` None is unlimited memory."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self.cache_releases = 0  # how often the GPU was full and cached segments were returned
        self.out_of_memory: AllocationFailed | None = None  # of a replay: the first request that did not fit
        # A large rest is split off where `remaining > 1 MiB` in torch; sizes are multiples of 512 bytes.
        self._small, self._large = _Pool(ROUNDING_BYTES), _Pool(SMALL_REQUEST_BYTES + ROUNDING_BYTES)
        self._live: dict[int, _Block | None] = {}  # None: a storage of no bytes
        self._next_address = 0

    def allocate(self, key: int, size_bytes: int) -> None:
        """Raises AllocationFailed; what was allocated before stays, so that the caller can free some and go on."""
        assert key not in self._live, f"key {key} is in use"
        if size_bytes == 0:
            self._live[key] = None
            return
        size = round_request(size_bytes)
        pool = self._small if size <= SMALL_REQUEST_BYTES else self._large
        place = bisect_left(pool.free, (size,))
        block = pool.free.pop(place)[2] if place < len(pool.free) else self._reserve_block(pool, size)
        if block is None:
            assert self.capacity_bytes is not None
            raise AllocationFailed(key, size_bytes, self.allocated_bytes, self.reserved_bytes, self.capacity_bytes)
        block.state = _LIVE
        if block.size - size >= pool.least_remainder:
            pool.add(_split_block(block, size))
        self._live[key] = block
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes

    def free(self, key: int) -> None:
        block = self._live.pop(key)
        if block is not None:
            self.allocated_bytes -= block.size
            block.pool.add(block)

    def _reserve_block(self, pool: _Pool, size: int) -> _Block | None:
        """A new segment; None where the GPU has no memory for it, even after cached segments were returned."""
        segment = segment_bytes(size)
        if self.capacity_bytes is not None and self.reserved_bytes + segment > self.capacity_bytes:
            self.cache_releases += 1
            self._release_cached()
            if self.reserved_bytes + segment > self.capacity_bytes:
                return None
        self.reserved_bytes += segment
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        block = _Block(pool, self._next_address, segment, _FREE)
        self._next_address += segment
        return block

    def _release_cached(self) -> None:
        """A block without neighbours is a whole segment."""
        for pool in (self._small, self._large):
            whole = [entry for entry in pool.free if entry[2].previous is None and entry[2].next is None]
            self.reserved_bytes -= sum(size for size, _, _ in whole)
            gone = {address for _, address, _ in whole}
            pool.free = [entry for entry in pool.free if entry[1] not in gone]


def replay(events: Iterable[Allocate | Free], capacity_bytes: int | None = None) -> CachingAllocator:
    """Run events through a fresh allocator. `out_of_memory` is the first request that the GPU cannot hold.

    The replay goes on as if the GPU had just as much more memory as each such request lacks, so that the reserved peak
    is what the events need, not where they stopped. A GPU of 10 GiB, requests of 8 and 6 GiB: 14 GiB.
    """
    allocator = CachingAllocator(capacity_bytes)
    for event in events:
        if isinstance(event, Free):
            allocator.free(event.key)
            continue
        try:
            allocator.allocate(event.key, event.size_bytes)
        except AllocationFailed as error:
            allocator.out_of_memory = allocator.out_of_memory or error
            allocator.capacity_bytes = allocator.reserved_bytes + segment_bytes(round_request(event.size_bytes))
            allocator.allocate(event.key, event.size_bytes)
    return allocator
