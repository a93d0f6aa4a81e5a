from __future__ import annotations

import pytest

from seqfit.planning.allocator import Allocate, Free
from seqfit.planning.device_rules import CPU_RULES, GPU_RULES
from seqfit.planning.memory import list_requests, measure_steps, measure_tape, sum_categories
from seqfit.planning.tape import ACTIVATIONS, GIVEN, GRADIENTS, STATE, TEMPORARIES, WEIGHTS, MemoryBlock, Tape

MIB = 2**20


def make_tape(activation_bytes: int = 40 * MIB, micro_batches: int = 1) -> Tape:
    """Weights and state of 30 and 60 MiB, an activation each, a gradient, a temporary of the update."""
    tape = Tape()
    tape.allocate(MemoryBlock(30 * MIB, WEIGHTS, "", GIVEN))
    tape.allocate(MemoryBlock(60 * MIB, STATE, "", GIVEN))
    tape.parts.append(len(tape.events))
    activation = tape.allocate(MemoryBlock(activation_bytes, ACTIVATIONS, "layer", "mm"))
    gradient = tape.allocate(MemoryBlock(30 * MIB, GRADIENTS, "", "mm"))
    tape.free(activation)
    for _ in range(micro_batches - 1):
        tape.parts.append(len(tape.events))
        tape.free(tape.allocate(MemoryBlock(activation_bytes, ACTIVATIONS, "layer", "mm")))
    tape.update_from = len(tape.events)
    tape.free(tape.allocate(MemoryBlock(30 * MIB, TEMPORARIES, "", "sqrt")))
    tape.free(gradient)
    return tape


def test_on_a_cpu_the_peak_is_that_of_allocated_bytes() -> None:
    memory = measure_tape(make_tape(), CPU_RULES)
    assert memory.total_bytes == memory.allocated_bytes == 160 * MIB
    assert memory.parts == {WEIGHTS: 30 * MIB, GRADIENTS: 30 * MIB, STATE: 60 * MIB, ACTIVATIONS: 40 * MIB}


def test_on_a_gpu_workspaces_and_context_come_on_top() -> None:
    memory = measure_tape(make_tape(), GPU_RULES, context_bytes=500 * MIB)
    assert memory.allocated_bytes >= 160 * MIB + 2 * GPU_RULES.workspace_bytes
    assert memory.reserved_bytes >= memory.allocated_bytes
    assert memory.total_bytes == memory.reserved_bytes + 500 * MIB


def test_the_largest_micro_batch_of_all_steps_decides() -> None:
    steps = [[make_tape(10 * MIB)], [make_tape(90 * MIB)], [make_tape(20 * MIB)]]
    assert measure_steps(steps, CPU_RULES).allocated_bytes == 210 * MIB


def test_a_step_that_does_not_fit_reports_what_it_requested() -> None:
    memory = measure_steps([[make_tape()]] * 2, GPU_RULES, context_bytes=100 * MIB, capacity_bytes=200 * MIB)
    assert memory.out_of_memory is not None
    assert memory.out_of_memory.capacity_bytes == 100 * MIB
    assert measure_steps([[make_tape()]] * 2, GPU_RULES, capacity_bytes=400 * MIB).out_of_memory is None


def test_the_first_update_makes_the_state_while_gradients_are_there() -> None:
    requests = list(list_requests([[make_tape()]] * 2, workspace_bytes=MIB))
    state = requests.index(Allocate(1, 60 * MIB))
    live = {request.key for request in requests[:state] if isinstance(request, Allocate)}
    live -= {request.key for request in requests[:state] if isinstance(request, Free)}
    sizes = {request.key: request.size_bytes for request in requests if isinstance(request, Allocate)}
    assert sorted(sizes[key] for key in live) == [MIB, MIB, 30 * MIB, 30 * MIB]  # workspaces, weights, gradients


def test_all_but_what_stays_is_freed_in_the_end() -> None:
    requests = list(list_requests([[make_tape(micro_batches=2)] * 3] * 2, workspace_bytes=MIB))
    taken = [request for request in requests if isinstance(request, Allocate)]
    freed = {request.key for request in requests if isinstance(request, Free)}
    left = sorted(request.size_bytes for request in taken if request.key not in freed)
    assert left == [MIB, MIB, 30 * MIB, 60 * MIB]
    assert sum(request.size_bytes == 40 * MIB for request in taken) == 6


def test_a_tape_of_one_micro_batch_does_not_stand_for_several() -> None:
    with pytest.raises(AssertionError, match="adds to gradients"):
        list(list_requests([[make_tape()] * 2], workspace_bytes=0))


@pytest.mark.parametrize("count", [0, 2])
def test_categories_without_bytes_are_left_out(count: int) -> None:
    blocks = [MemoryBlock(5, GRADIENTS, "", "mm")] * count
    assert sum_categories(blocks) == ({GRADIENTS: 10} if count else {})
