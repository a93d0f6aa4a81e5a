from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from seqfit.data.tokenize import map_in_order


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(map_in_order(lambda item: item * item, range(50), threads)) == [item * item for item in range(50)]


def test_no_more_than_a_few_items_are_taken_ahead() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = map_in_order(str, items(), 2)
    assert next(results) == "0"
    assert len(taken) == 4
    results.close()


def test_threads_work_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    assert len(set(map_in_order(lambda _: both.wait(), range(4), 2))) == 2


def test_what_an_item_raises_is_raised_in_its_place() -> None:
    results = map_in_order(lambda item: 1 // item, [1, 1, 0, 1], 2)
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
