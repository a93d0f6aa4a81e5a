from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from seqfit.step.optimizers import InBackward


class Tied(nn.Module):
    """A table that is embedding and head at once, and a layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.layer = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 4, bias=False)  # used where a batch asks for it

    def forward(self, ids: torch.Tensor, *, spare: bool = False) -> torch.Tensor:
        hidden = self.layer(self.table(ids))
        return (self.spare(hidden) if spare else hidden) @ self.table.weight.T


IDS = torch.tensor([1, 2, 3])


@pytest.fixture
def model() -> Tied:
    torch.manual_seed(0)
    return Tied()


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def test_each_gradient_is_freed_and_each_weight_updated_once(model: Tied) -> None:
    steps: list[int] = []

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            steps.extend(id(tensor) for group in self.param_groups for tensor in group["params"])
            super().step()

    hooks = InBackward(Counting(model.parameters(), lr=0.1))
    hooks.arm(last=True)
    model(IDS, spare=True).square().sum().backward()
    assert sorted(steps) == sorted(id(tensor) for tensor in model.parameters())
    assert all(tensor.grad is None for tensor in model.parameters())
    assert hooks.updated == 4


def test_a_table_with_two_uses_gets_the_sum_of_both_gradients(model: Tied) -> None:
    model(IDS).square().sum().backward()
    expected = model.table.weight.detach() - 0.1 * model.table.weight.grad
    model.zero_grad()
    hooks = InBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    hooks.arm(last=True)
    model(IDS).square().sum().backward()
    assert torch.allclose(model.table.weight, expected)


def test_before_the_last_micro_batch_gradients_are_kept_and_no_weight_is_updated(model: Tied) -> None:
    hooks = InBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    before = weights_of(model)
    hooks.arm(last=False)
    model(IDS).square().sum().backward()
    assert hooks.updated == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.named_parameters())
    assert model.layer.weight.grad is not None


def test_a_weight_that_the_last_micro_batch_does_not_use_is_updated_at_the_end(model: Tied) -> None:
    hooks = InBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    hooks.arm(last=False)
    model(IDS, spare=True).square().sum().backward()
    gradient, before = model.spare.weight.grad, model.spare.weight.detach().clone()
    assert gradient is not None
    hooks.arm(last=True)
    model(IDS).square().sum().backward()
    assert torch.equal(model.spare.weight, before)
    hooks.finish()
    assert torch.allclose(model.spare.weight, before - 0.1 * gradient)
    assert model.spare.weight.grad is None


def test_finishing_does_not_update_anything_twice(model: Tied) -> None:
    hooks = InBackward(torch.optim.AdamW(model.parameters(), lr=0.1, fused=True))
    hooks.arm(last=True)
    model(IDS, spare=True).square().sum().backward()
    before = weights_of(model)
    hooks.finish()
    assert hooks.updated == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.named_parameters())


def test_gradients_are_freed_while_the_backward_still_runs() -> None:
    """Of eight layers never more than two have a gradient, where there would be eight."""
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(8)))
    hooks = InBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def watch(gradient: torch.Tensor) -> None:
        nonlocal most
        alive.append(weakref.ref(gradient))
        most = max(most, sum(reference() is not None for reference in alive))

    for parameter in model.parameters():
        parameter.register_hook(watch)
    hooks.arm(last=True)
    gc.disable()
    try:
        model(torch.ones(2, 8)).sum().backward()
    finally:
        gc.enable()
    assert len(alive) == 8
    assert most <= 2


def test_an_error_in_the_backward_shows_that_weights_were_updated(model: Tied) -> None:
    hooks = InBackward(torch.optim.SGD(model.parameters(), lr=0.1))

    def fail(_: torch.Tensor) -> None:
        raise MemoryError("no room")

    model.table.weight.register_hook(fail)
    hooks.arm(last=True)
    with pytest.raises(MemoryError):
        model(IDS, spare=True).square().sum().backward()
    assert hooks.updated > 0


def test_a_rate_set_after_loading_a_state_is_used(model: Tied) -> None:
    """Loading puts new groups in the place of the old ones."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = InBackward(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.param_groups[0]["lr"] = 0.0
    before = weights_of(model)
    hooks.arm(last=True)
    model(IDS).square().sum().backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.named_parameters())


def test_without_its_hooks_a_backward_is_an_ordinary_one(model: Tied) -> None:
    hooks = InBackward(torch.optim.SGD(model.parameters(), lr=0.1))
    hooks.arm(last=True)
    hooks.remove()
    model(IDS).square().sum().backward()
    assert hooks.updated == 0
    assert model.layer.weight.grad is not None
