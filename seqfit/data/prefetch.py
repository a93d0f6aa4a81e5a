"""Global batches prepared in the background while the device works on those before them.

Batches come in and go out in the same order, with the same content; only the waiting goes away.

    ahead = 2      the loop has batch 5, the thread has prepared 6 and 7 and waits
                   the loop takes 6, the thread prepares 8

Row ids become tensors of token ids in one thread: numpy's copies let go of the interpreter, and one thread keeps the
order. With a GPU the tensors go into pinned memory, from where a copy to the device does not stop the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import torch

from seqfit.data.loader import GlobalBatch
from seqfit.data.micro_batch import MicroBatch

THREAD_NAME = "seqfit-prefetch"
T = TypeVar("T")


def prefetch(batches: Iterator[GlobalBatch], ahead: int, pin: bool) -> Generator[GlobalBatch]:
    """The same batches, `ahead` of them prepared early (0: none), pinned where a GPU will take them.

    Close it, or use it up: until then its thread waits for room.
    """
    if pin:
        batches = map(partial(pin_batch, device=torch.cuda.current_device()), batches)
    return run_ahead(batches, ahead)


def run_ahead(items: Iterator[T], ahead: int) -> Generator[T]:
    """The same items, taken from `items` by a thread. What it raises is raised here, in the item's place."""
    if ahead == 0:
        yield from items
        return
    with ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME) as thread:
        waiting: deque[Future[list[T]]] = deque(thread.submit(_take, items) for _ in range(ahead))
        try:
            while taken := waiting.popleft().result():
                waiting.append(thread.submit(_take, items))
                yield taken[0]
        finally:
            for future in waiting:  # leaving the executor then waits for the one item in work, if any
                future.cancel()


def _take(items: Iterator[T]) -> list[T]:
    """The next item alone, or nothing at the end."""
    return list(islice(items, 1))


def pin_batch(batch: GlobalBatch, device: int) -> GlobalBatch:
    """Its tensors in pinned memory. A thread starts on GPU 0 and would open a context there, so it is told which."""
    with torch.cuda.device(device):
        return replace(batch, micro_batches=[_pin(micro_batch) for micro_batch in batch.micro_batches])


def _pin(batch: MicroBatch) -> MicroBatch:
    pinned: dict[str, Any] = {
        name: value.pin_memory() for name, value in vars(batch).items() if isinstance(value, torch.Tensor)
    }
    return replace(batch, **pinned)
