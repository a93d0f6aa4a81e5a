"""Updates inside the backward are those of an ordinary step, and so is the optimizer's state.

Tolerance: none. The same kernel sees the same numbers, one tensor at a time (fp32, one thread).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.parallel.execution import enable_recompute
from seqfit.recipe.schema import ModelRecipe, OptimizerRecipe
from seqfit.step.optimizers import InBackward, build_optimizer, set_learning_rate
from seqfit.tasks import ClassifierHead

HEAD = ClassifierHead(("yes", "no", "maybe"))
RATES = (1e-3, 3e-3, 2e-3)
SOURCES = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0], [10, 11, 12, 1], [13, 1, 0, 0], [14, 15, 1, 0], [16, 17, 18, 1]])


@pytest.fixture
def fresh_model(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    def load(name: str) -> Any:
        kind = "classifier" if name == "bert" else "text-to-text"
        recipe = ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind, "dropout": 0.1})
        torch.manual_seed(0)  # of the classifier's fresh head
        return load_model(recipe, HEAD).train()

    return load


def loss_of(model: Any, source: torch.Tensor) -> torch.Tensor:
    classifies = not model.config.is_encoder_decoder
    labels, decoder = (source[:, 0] % 3, None) if classifies else (source.roll(-1, dims=1), source)
    loss: torch.Tensor = LossModel(model, LossRule())(source, labels, decoder, (source != 0).long())
    return loss


def build(model: Any, name: str = "adamw", kernel: Any = "auto") -> torch.optim.Optimizer:
    rule = OptimizerRecipe.model_validate({"name": name, "weight_decay": 0.1})
    optimizer, _ = build_optimizer(model, rule, RATES[0], device=torch.device("cpu"), kernel=kernel)
    return optimizer


def train(model: Any, optimizer: torch.optim.Optimizer, hooks: InBackward | None, parts: int) -> None:
    """Three steps at three rates, each of six examples split into parts."""
    for number, rate in enumerate(RATES):
        set_learning_rate(optimizer, rate)
        torch.manual_seed(number)  # of dropout
        pieces = SOURCES.split(len(SOURCES) // parts)
        for index, source in enumerate(pieces):
            if hooks is not None:
                hooks.arm(last=index == len(pieces) - 1)
            (loss_of(model, source) / len(SOURCES)).backward()
        if hooks is not None:
            hooks.finish()
        else:
            optimizer.step()
            optimizer.zero_grad()


def assert_same(ours: Any, reference: Any) -> None:
    for name, tensor in reference.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5", "bart", "bert"])
@pytest.mark.parametrize("parts", [1, 3])
def test_three_steps_give_the_weights_of_an_ordinary_optimizer(
    name: str, parts: int, fresh_model: Callable[[str], Any]
) -> None:
    ours, reference, start = fresh_model(name), fresh_model(name), fresh_model(name)
    optimizer = build(ours)
    train(ours, optimizer, InBackward(optimizer), parts)
    train(reference, build(reference), None, parts)
    assert_same(ours, reference)
    assert any(not torch.equal(tensor, start.state_dict()[key]) for key, tensor in reference.state_dict().items())


@pytest.mark.parametrize(("rule", "kernel"), [("adamw", "foreach"), ("adamw", "loop"), ("adafactor", "auto")])
def test_any_rule_and_kernel_may_step_inside_the_backward(
    rule: str, kernel: str, fresh_model: Callable[[str], Any]
) -> None:
    ours, reference = fresh_model("t5"), fresh_model("t5")
    optimizer = build(ours, rule, kernel)
    train(ours, optimizer, InBackward(optimizer), 2)
    train(reference, build(reference, rule, kernel), None, 2)
    assert_same(ours, reference)


def test_recomputed_blocks_read_their_weights_before_they_are_updated(fresh_model: Callable[[str], Any]) -> None:
    ours, reference = fresh_model("t5"), fresh_model("t5")
    enable_recompute(ours, "blocks")
    optimizer = build(ours)
    train(ours, optimizer, InBackward(optimizer), 2)
    train(reference, build(reference), None, 2)
    assert_same(ours, reference)


def test_the_state_is_that_of_one_ordinary_optimizer_and_goes_on_in_one(fresh_model: Callable[[str], Any]) -> None:
    """Read by name from a run with updates in the backward, loaded into a plain one, and the other way round."""
    ours, reference = fresh_model("t5"), fresh_model("t5")
    with_hooks, plain = build(ours), build(reference)
    train(ours, with_hooks, InBackward(with_hooks), 2)
    train(reference, plain, None, 2)
    by_name = get_optimizer_state_dict(ours, with_hooks)
    assert by_name["state"].keys() == dict(ours.named_parameters()).keys()
    for name, values in get_optimizer_state_dict(reference, plain)["state"].items():
        assert all(torch.equal(by_name["state"][name][key], value) for key, value in values.items()), name

    resumed = fresh_model("t5")
    resumed.load_state_dict(ours.state_dict())
    optimizer = build(resumed)
    set_optimizer_state_dict(resumed, optimizer, copy.deepcopy(by_name))
    train(resumed, optimizer, InBackward(optimizer), 2)
    train(reference, plain, None, 2)
    assert_same(resumed, reference)
