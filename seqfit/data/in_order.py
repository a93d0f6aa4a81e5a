"""A function over many items by several threads, results in the order of the items.

    items 1 2 3 4 5, two threads      1 and 2 in work, 3 and 4 waiting, 5 not yet taken from its iterator
    1 is done: its result comes out, 5 is taken

Memory is that of a few items however many there are. It pays for functions that leave the interpreter, such as those of
tokenizers written in Rust.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_order(function: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R]:
    """What the function gives for each item; with no threads it is called here.

    What it raises is raised here, in the item's place. Close it or use it up: leaving waits for the items in work.
    """
    if threads == 0:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="seqfit-tokenize") as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
