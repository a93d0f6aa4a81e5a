from __future__ import annotations

import pytest

from seqfit.planning.tape import ACTIVATIONS, WEIGHTS, KernelCost, MemoryBlock, Tape


def block(size: int, category: str = ACTIVATIONS) -> MemoryBlock:
    return MemoryBlock(size, category, "", "mm")


@pytest.fixture
def tape() -> Tape:
    """The example of the module: takes 8 and 4, gives the first, takes 6."""
    tape = Tape()
    first = tape.allocate(block(8, WEIGHTS))
    tape.allocate(block(4))
    tape.free(first)
    tape.allocate(block(6))
    return tape


def test_live_bytes_are_counted_after_each_event(tape: Tape) -> None:
    assert tape.live_bytes().tolist() == [8, 12, 4, 10]
    assert tape.peak_bytes == 12


def test_the_peak_is_made_of_the_blocks_that_are_live_then(tape: Tape) -> None:
    assert [(found.bytes, found.category) for found in tape.live_at_peak()] == [(8, WEIGHTS), (4, ACTIVATIONS)]
    assert [found.bytes for found in tape.live_at(3)] == [4, 6]


def test_an_empty_tape_has_no_peak() -> None:
    assert Tape().peak_bytes == 0
    assert Tape().live_at_peak() == []


def test_blocks_that_go_at_once_go_by_number_but_not_across_a_mark() -> None:
    tape = Tape()
    for _ in range(4):
        tape.allocate(block(1))
    tape.free(2)
    tape.free(0)
    tape.mark("backward", "")
    tape.free(3)
    tape.free(1)
    tape.order_frees()
    assert tape.events == [0, 1, 2, 3, ~0, ~2, ~1, ~3]


def test_a_stretch_in_which_nothing_happened_is_replaced() -> None:
    tape = Tape()
    tape.mark("forward", "a")
    tape.mark("forward", "b")
    tape.allocate(block(1))
    tape.mark("backward", "c")
    assert [span.name for span in tape.spans] == ["b", "c"]
    assert [(span.name, events) for span, events in tape.span_events()] == [("b", [0]), ("c", [])]


def test_a_part_is_what_one_micro_batch_did() -> None:
    tape = Tape()
    tape.allocate(block(100, WEIGHTS))
    for _ in range(2):
        tape.parts.append(len(tape.events))
        tape.free(tape.allocate(block(1)))
    tape.update_from = len(tape.events)
    tape.allocate(block(5))
    assert (tape.part(0), tape.part(1)) == ([1, ~1], [2, ~2])


@pytest.mark.parametrize(
    ("name", "dtype", "flops", "kind"),
    [
        ("mm", "float32", 8, "product"),
        ("addmm", "bfloat16", 8, "half product"),
        ("bmm", "float16", 8, "half batched product"),
        ("add", "float32", 0, "other"),
        ("batched product", "float32", 8, "batched product"),
    ],
)
def test_a_kernel_is_of_the_kind_that_a_device_is_good_or_bad_at(name: str, dtype: str, flops: int, kind: str) -> None:
    assert KernelCost(name, 0, dtype, flops, 0).kind == kind
