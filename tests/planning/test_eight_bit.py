from __future__ import annotations

from seqfit.planning.tape import GIVEN, STATE, WEIGHTS, MemoryBlock, Tape
from seqfit.planning.template import shrink_tape


def make_tape(category: str, *shape: int) -> Tape:
    tape = Tape()
    weights = shape[0] * shape[1]
    tape.allocate(MemoryBlock(4 * weights, category, "", GIVEN, shape))
    return tape


def test_a_moment_takes_a_byte_per_weight_and_a_scale_for_each_256() -> None:
    assert shrink_tape(make_tape(STATE, 64, 128)).peak_bytes == 8192 + 32 * 4


def test_small_tensors_keep_their_moments() -> None:
    assert shrink_tape(make_tape(STATE, 1, 4095)).peak_bytes == 4 * 4095


def test_only_the_optimizer_state_shrinks() -> None:
    assert shrink_tape(make_tape(WEIGHTS, 64, 128)).peak_bytes == 4 * 8192
