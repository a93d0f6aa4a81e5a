from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any

import pytest
import torch

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import THREAD_NAME, GlobalBatch, Loader, Padding, run_ahead


class Source(Iterator[int]):
    """Counts up to an end and notes how far it was asked, and by which thread."""

    def __init__(self, end: int, fails_at: int | None = None) -> None:
        self.asked = 0
        self.threads: set[str] = set()
        self.reached: dict[int, threading.Event] = {number: threading.Event() for number in range(end + 2)}
        self._end, self._fails_at = end, fails_at

    def __next__(self) -> int:
        self.threads.add(threading.current_thread().name)
        self.asked += 1
        self.reached[min(self.asked, self._end + 1)].set()
        if self.asked == self._fails_at:
            raise ValueError(f"row {self.asked} is broken")
        if self.asked > self._end:
            raise StopIteration
        return self.asked


def prefetch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    yield
    assert prefetch_threads() == []


@pytest.mark.parametrize("ahead", [0, 1, 2, 5, 50])
def test_items_come_in_their_order_and_end(ahead: int) -> None:
    assert list(run_ahead(Source(9), ahead)) == list(range(1, 10))
    assert list(run_ahead(Source(0), ahead)) == []


@pytest.mark.parametrize("ahead", [1, 3])
def test_so_many_are_prepared_ahead_and_no_more(ahead: int) -> None:
    source = Source(20)
    with contextlib.closing(run_ahead(source, ahead)) as items:
        assert next(items) == 1
        assert source.reached[1 + ahead].wait(timeout=240)
        assert next(items) == 2
        assert source.reached[2 + ahead].wait(timeout=240)
        assert not source.reached[3 + ahead].wait(timeout=0.05)
    assert source.asked == 2 + ahead


def test_nothing_is_prepared_before_the_first_item_is_requested() -> None:
    source = Source(5)
    run_ahead(source, 2).close()
    assert source.asked == 0


def test_without_prefetching_there_is_no_thread() -> None:
    source = Source(3)
    items = run_ahead(source, 0)
    assert next(items) == 1
    assert source.asked == 1
    assert prefetch_threads() == []
    assert source.threads == {threading.current_thread().name}


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_an_error_is_raised_in_its_place(ahead: int) -> None:
    items = run_ahead(Source(9, fails_at=3), ahead)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="row 3 is broken"):
        next(items)
    assert list(items) == []


def test_an_early_end_stops_the_thread() -> None:
    source = Source(1000)
    items = run_ahead(source, 2)
    assert list(islice(items, 3)) == [1, 2, 3]
    assert len(prefetch_threads()) == 1
    items.close()
    assert prefetch_threads() == []
    assert source.asked <= 5


def test_only_the_item_in_work_is_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    all_cancelled = threading.Event()
    asked: list[int] = []
    cancelled: list[Future[Any]] = []
    cancel = Future.cancel

    def note(future: Future[Any]) -> bool:
        cancelled.append(future)
        result = cancel(future)
        if len(cancelled) == 3:
            all_cancelled.set()
        return result

    def slow() -> Iterator[int]:
        for number in (1, 2, 3, 4):
            asked.append(number)
            if number == 2:
                all_cancelled.wait(timeout=240)
            yield number

    monkeypatch.setattr(Future, "cancel", note)
    items = run_ahead(slow(), 3)
    assert next(items) == 1
    items.close()
    assert asked in ([1], [1, 2])  # the second was in work, or not yet


def test_an_interruption_of_the_consumer_stops_the_thread() -> None:
    def consume() -> None:
        with contextlib.closing(run_ahead(Source(1000), 2)) as items:
            for item in items:
                if item == 3:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert prefetch_threads() == []


@pytest.fixture
def loader(make_split: Any) -> Loader:
    split = make_split([[5, 6, 1], [7, 1], [8, 9, 1], [4, 1]], [[8, 1], [9, 3, 1], [1], [2, 1]])
    rule = MicroBatchRule("padded", tokens=10**6, examples=1)
    return Loader(split, Padding(0, 0), rule, batch_examples=2, batch_tokens=None, seed=0)


def same(ours: GlobalBatch, other: GlobalBatch) -> bool:
    pairs = list(zip(ours.micro_batches, other.micro_batches, strict=True))
    tensors = all(torch.equal(a.source_ids, b.source_ids) and torch.equal(a.labels, b.labels) for a, b in pairs)
    return tensors and ours.rows.tolist() == other.rows.tolist() and ours.epoch == other.epoch


def test_batches_are_the_loaders_own(loader: Loader) -> None:
    with contextlib.closing(loader.prefetch(0, 5, 2, pin=False)) as early:
        ours, expected = list(early), list(islice(loader.iterate(), 5))
    assert all(same(batch, reference) for batch, reference in zip(ours, expected, strict=True))


def test_every_tensor_is_pinned_and_nothing_else_changes(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU nothing can be pinned: copies stand in for pinned tensors."""
    pinned: list[int] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        pinned.append(id(copy))
        return copy

    devices: list[int] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device", lambda index: devices.append(index) or contextlib.nullcontext())
    with contextlib.closing(loader.prefetch(0, 9, 1, pin=True)) as early:
        batch = next(early)
    assert set(devices) == {3}
    assert same(batch, next(loader.iterate()))
    for micro_batch in batch.micro_batches:
        tensors = [value for value in vars(micro_batch).values() if isinstance(value, torch.Tensor)]
        assert len(tensors) == 4
        assert all(id(tensor) in pinned for tensor in tensors)
