"""Recomputed activations give the loss and the gradients of stored ones, dropout included.

Tolerance: none. The same kernels run on the same numbers, so every bit is equal (fp32, one thread).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.trainable import add_adapters
from seqfit.parallel.execution import Recompute, enable_recompute
from seqfit.recipe.schema import LoraRecipe, ModelRecipe
from seqfit.tasks import ClassifierHead

HEAD = ClassifierHead(("yes", "no", "maybe"))
Outcome = tuple[torch.Tensor, dict[str, torch.Tensor]]


@pytest.fixture
def run(tiny_model: Callable[[str], Path]) -> Callable[..., Outcome]:
    """Loss and gradients of one batch with a dropout of 0.3."""

    def compute(name: str, which: Recompute, adapters: bool = False) -> Outcome:
        kind = "classifier" if name == "bert" else "text-to-text"
        recipe = ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind, "dropout": 0.3})
        torch.manual_seed(0)  # of the classifier's fresh head and of the adapters
        model: Any = load_model(recipe, HEAD).train()
        if adapters:
            add_adapters(model, LoraRecipe(rank=4, dropout=0.2))
        enable_recompute(model, which)
        torch.manual_seed(1)  # of dropout
        source = torch.tensor([[5, 6, 7, 8, 1], [9, 10, 1, 0, 0]])
        mask = (source != 0).long()
        target = torch.tensor([[5, 6, 1], [9, 1, -100]])
        if name == "bert":
            loss = LossModel(model, LossRule())(source, torch.tensor([0, 2]), None, mask)
        else:
            decoder = torch.tensor([[0, 5, 6], [0, 9, 1]])
            loss = LossModel(model, LossRule())(source, target, decoder, mask)
        loss.backward()
        return loss.detach(), {key: tensor.grad for key, tensor in model.named_parameters() if tensor.grad is not None}

    return compute


def assert_same(ours: Outcome, reference: Outcome) -> None:
    assert torch.equal(ours[0], reference[0])
    assert ours[1].keys() == reference[1].keys()
    assert max(float(gradient.abs().max()) for gradient in reference[1].values()) > 1e-3
    for name, gradient in reference[1].items():
        assert torch.equal(ours[1][name], gradient), name


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "umt5", "bart", "bert"])
@pytest.mark.parametrize("which", ["blocks", "alternate"])
def test_recomputed_equals_stored_with_the_same_dropout(
    name: str, which: Recompute, run: Callable[..., Outcome]
) -> None:
    assert_same(run(name, which), run(name, "none"))


@pytest.mark.parametrize("name", ["t5", "bert"])
def test_adapters_learn_the_same_with_recompute(name: str, run: Callable[..., Outcome]) -> None:
    assert_same(run(name, "blocks", adapters=True), run(name, "none", adapters=True))


def test_another_dropout_would_be_seen(run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above would catch: a recomputation that draws its own dropout."""
    stored = run("t5", "none")
    forgetful = torch.utils.checkpoint.checkpoint

    def forget(function: Any, *args: Any, use_reentrant: bool) -> Any:
        return forgetful(function, *args, use_reentrant=use_reentrant, preserve_rng_state=False)

    monkeypatch.setattr("seqfit.parallel.execution.checkpoint", forget)
    loss, gradients = run("t5", "blocks")
    assert torch.equal(loss, stored[0])
    assert not all(torch.equal(gradients[name], gradient) for name, gradient in stored[1].items())
