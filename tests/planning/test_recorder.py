from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from seqfit.planning.device_rules import GPU_RULES, DeviceRules
from seqfit.planning.recorder import TapeRecorder
from seqfit.planning.tape import ACTIVATIONS, GRADIENTS, LOSS, TEMPORARIES, WEIGHTS, Tape


class Net(nn.Module):
    """x -> sum of (x + up(x)) * 2: the input of the second half is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16, bias=False)
        self.second = nn.Linear(16, 16, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = self.first(given)
        return (hidden + self.second(hidden)).exp().sum()


def record(rules: DeviceRules | None = None, micro_batches: int = 1) -> Tape:
    net = Net()
    recorder = TapeRecorder(net, rules or DeviceRules())
    recorder.register(net.parameters(), WEIGHTS)
    given = torch.ones(32, 16)
    with recorder:
        for _ in range(micro_batches):
            net(given).backward()
        torch.zeros(1000)
    return recorder.tape


def test_every_block_but_gradients_and_given_ones_goes_again() -> None:
    tape = record()
    gone = {~event for event in tape.events if event < 0}
    left = [block.category for number, block in enumerate(tape.blocks) if number not in gone]
    assert left.count(GRADIENTS) == 2
    assert set(left) <= {WEIGHTS, GRADIENTS, "temporaries", LOSS}


def test_a_block_is_named_after_the_module_that_made_it() -> None:
    (made,) = [block for block in record().blocks if block.place == "first"]
    assert (made.bytes, made.category, made.shape) == (32 * 16 * 4, ACTIVATIONS, (32, 16))


def test_what_the_outermost_module_makes_is_logits_and_loss() -> None:
    assert {block.category for block in record().blocks if block.kernel in ("exp", "sum")} == {LOSS}


def test_matrix_products_are_counted_forward_and_backward() -> None:
    products = [kernel.flops for kernel in record().kernels if kernel.flops]
    assert products == [2 * 32 * 16 * 16] * 5  # two forward, two for weights, one for the hidden rows


def test_the_second_gradient_of_a_tensor_is_added_into_the_first_ones_memory() -> None:
    """An engine that is watched adds out of place; the sum must not count twice."""
    tape = record()
    (number,) = [n for n, block in enumerate(tape.blocks) if block.kernel == "add" and block.category == TEMPORARIES]
    taken_at = tape.events.index(number)
    assert tape.events[taken_at - 1] < 0
    assert tape.blocks[~tape.events[taken_at - 1]].bytes == tape.blocks[number].bytes


def test_a_gradient_that_is_a_view_is_not_added_to_in_place() -> None:
    """Its base holds on to the memory, so the engine takes new memory for the sum, as with a tied head."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64, 64))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return ((given @ self.weight.exp()) @ self.weight.t()).sum()

    net = Tied()
    recorder = TapeRecorder(net)
    with recorder:
        net(torch.ones(2, 64)).backward()
    tape = recorder.tape
    (number,) = [n for n, block in enumerate(tape.blocks) if block.kernel == "add" and block.bytes == 64 * 64 * 4]
    taken_at = tape.events.index(number)
    live = [block for block in tape.live_at(taken_at) if block.bytes == 64 * 64 * 4 and block.category == TEMPORARIES]
    assert [block.kernel for block in live] == ["mm", "mul"]  # both parts beside their sum, which is a gradient


def test_a_second_micro_batch_finds_the_first_ones_gradients() -> None:
    tape = record(micro_batches=2)
    assert len(tape.parts) == 2
    assert sum(block.category == GRADIENTS for block in tape.blocks) == 2
    assert tape.parts[1] < tape.update_from < len(tape.events)


def test_what_comes_after_the_last_backward_belongs_to_the_update() -> None:
    tape = record()
    (update,) = [n for n, block in enumerate(tape.blocks) if block.bytes == 4000]
    assert tape.events.index(update) >= tape.update_from
    assert tape.spans[-1].phase == "update"


def test_a_kernels_input_is_held_as_long_as_its_output_where_a_rule_says_so() -> None:
    class Softmax(nn.Module):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return torch.softmax(given * 2, -1).sum()

    def peak(rules: DeviceRules) -> int:
        net, given = Softmax(), torch.ones(64, 64, requires_grad=True)
        recorder = TapeRecorder(net, rules)
        with recorder:
            net(given).backward()
        return recorder.tape.peak_bytes

    kept = peak(DeviceRules(softmax_keeps_input=True)) - peak(DeviceRules())
    assert kept == pytest.approx(64 * 64 * 4)


def test_hooks_are_gone_afterwards() -> None:
    net = Net()
    recorder = TapeRecorder(net)
    with recorder:
        net(torch.ones(2, 16)).backward()
    events = len(recorder.tape.events)
    net(torch.ones(2, 16)).backward()
    assert len(recorder.tape.events) == events


def test_dropout_is_one_kernel_on_a_gpu() -> None:
    """It reads its input, and writes the output and a byte per element. On a CPU it is four kernels."""
    net = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Dropout(0.5))
    kernels = {}
    for rules in (DeviceRules(), GPU_RULES):
        recorder = TapeRecorder(net, rules)
        with recorder:
            net(torch.ones(32, 16)).sum().backward()
        kernels[rules.kind] = [(kernel.name, kernel.bytes) for kernel in recorder.tape.kernels]
    both = [("mul", 32 * 16 * (4 + 4 + 1))] * 2  # forward and backward
    assert [kernel for kernel in kernels["gpu"] if kernel[0] in ("empty_like", "bernoulli_", "div_", "mul")] == both
    assert [name for name, _ in kernels["cpu"] if name in ("empty_like", "bernoulli_", "div_")] != []


def test_attention_that_keeps_no_scores_still_computes_them() -> None:
    """Forward two products, backward five: the scores are computed again."""
    net = Attention()
    recorder = TapeRecorder(net, GPU_RULES)
    with recorder, GPU_RULES.in_force():
        net(torch.ones(2, 4, 32, 8, requires_grad=True)).sum().backward()
    found = [(kernel.flops, kernel.kind) for kernel in recorder.tape.kernels if kernel.name == "attention"]
    one = 2 * 2 * 4 * 32 * 32 * 8
    assert found == [(2 * one, "batched product"), (5 * one, "batched product")]


def test_of_a_table_only_the_rows_that_are_looked_up_are_read() -> None:
    net = nn.Sequential(nn.Embedding(1000, 16))
    recorder = TapeRecorder(net)
    with recorder:
        net(torch.zeros(5, dtype=torch.int64))
    (kernel,) = [kernel for kernel in recorder.tape.kernels if kernel.name == "embedding"]
    assert kernel.tensors == (5 * 16 * 4, 5 * 8, 5 * 16 * 4)


class Attention(nn.Module):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(given, given, given)
