from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch, Loader, Padding
from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.recipe.schema import ModelRecipe, OptimizerRecipe
from seqfit.step.optimizers import build_optimizer
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep, micro_batch_loss_sum
from seqfit.tasks import ClassifierHead

CPU = torch.device("cpu")


@pytest.fixture
def batch(make_split: Any) -> GlobalBatch:
    split = make_split([[5, 6, 7, 1], [8, 1], [9, 10, 1]], [[5, 1], [8, 8, 8, 1], [9, 1]])
    loader = Loader(split, Padding(0, 0), MicroBatchRule(tokens=12), batch_examples=3, batch_tokens=None, seed=0)
    return next(iter(loader.iterate()))


@pytest.fixture
def model(tiny_model: Callable[[str], Path]) -> Any:
    recipe = ModelRecipe(path=str(tiny_model("t5")), dropout=0.0)
    return LossModel(load_model(recipe).train(), LossRule())


def sgd_step(model: Any, clip_norm: float | None, precision: str = "fp32") -> TrainStep:
    return TrainStep(model, torch.optim.SGD(model.parameters(), lr=1.0), Precision(precision, CPU, ""), clip_norm)


def change_of(model: Any, step: TrainStep, batch: GlobalBatch) -> torch.Tensor:
    before = [tensor.detach().clone() for tensor in model.parameters()]
    step.run(batch)
    changes = [new - old for new, old in zip(model.parameters(), before, strict=True)]
    return torch.cat([change.detach().flatten() for change in changes])


def test_the_loss_is_the_mean_over_the_global_batchs_target_tokens(model: Any, batch: GlobalBatch) -> None:
    assert len(batch.micro_batches) > 1
    with torch.no_grad():
        total = sum(float(micro_batch_loss_sum(model, micro_batch)) for micro_batch in batch.micro_batches)
    assert float(sgd_step(model, None).run(batch).loss) == pytest.approx(total / 8, rel=1e-6)


def test_the_update_is_clipped_to_the_norm_and_the_norm_before_is_returned(model: Any, batch: GlobalBatch) -> None:
    step = sgd_step(model, clip_norm=0.01)
    change = change_of(model, step, batch)
    assert float(change.norm()) == pytest.approx(0.01, rel=1e-3)
    norm = step.run(batch).gradient_norm
    assert norm is not None
    assert float(norm) > 0.1


def test_a_norm_below_the_limit_leaves_the_update_alone(tiny_model: Callable[[str], Path], batch: GlobalBatch) -> None:
    changes = []
    for clip_norm in (None, 1e6):
        model = LossModel(load_model(ModelRecipe(path=str(tiny_model("t5")), dropout=0.0)), LossRule())
        changes.append(change_of(model, sgd_step(model, clip_norm), batch))
    assert torch.equal(*changes)


def test_without_clipping_no_norm_is_computed(model: Any, batch: GlobalBatch) -> None:
    assert sgd_step(model, None).run(batch).gradient_norm is None


def test_no_gradient_is_left_for_the_next_step(model: Any, batch: GlobalBatch) -> None:
    sgd_step(model, 1.0).run(batch)
    assert all(tensor.grad is None for tensor in model.parameters())


def test_the_loss_waits_on_the_device_without_a_graph(model: Any, batch: GlobalBatch) -> None:
    outcome = sgd_step(model, 1.0).run(batch)
    assert not outcome.loss.requires_grad
    assert outcome.loss.dtype == torch.float32


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_twenty_steps_lower_the_loss_and_leave_the_weights_in_fp32(
    model: Any, batch: GlobalBatch, precision: str, optimizer: str
) -> None:
    rule, _ = build_optimizer(model, OptimizerRecipe.model_validate({"name": optimizer}), 1e-2, device=CPU)
    step = TrainStep(model, rule, Precision(precision, CPU, ""), 1.0)
    losses = [float(step.run(batch).loss) for _ in range(20)]
    assert losses[-1] < losses[0] / 3
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}


def test_bf16_rounds_the_forward_but_stays_near_the_reference(
    tiny_model: Callable[[str], Path], batch: GlobalBatch
) -> None:
    losses = []
    for precision in ("fp32", "bf16"):
        model = LossModel(load_model(ModelRecipe(path=str(tiny_model("t5")), dropout=0.0)), LossRule())
        losses.append(float(sgd_step(model, None, precision).run(batch).loss))
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_a_classifier_trains_by_the_same_step(tiny_model: Callable[[str], Path], make_split: Any) -> None:
    recipe = ModelRecipe(path=str(tiny_model("bert")), kind="classifier", dropout=0.0)
    torch.manual_seed(0)  # of the fresh head
    model = LossModel(load_model(recipe, ClassifierHead(("yes", "no", "maybe"))).train(), LossRule())
    split = make_split([[5, 6, 1], [7, 1], [8, 9, 10, 1]], labels=[0, 1, 2])
    loader = Loader(split, Padding(0), MicroBatchRule(tokens=6), batch_examples=3, batch_tokens=None, seed=0)
    step = TrainStep(model, torch.optim.AdamW(model.parameters(), lr=3e-3), Precision("fp32", CPU, ""), 1.0)
    losses = [float(step.run(batch).loss) for batch in islice(loader.iterate(), 30)]
    assert losses[0] == pytest.approx(1.1, abs=0.3)  # ln 3: the fresh head knows nothing
    assert losses[-1] < losses[0] / 3


@pytest.mark.parametrize("kernel", ["fused", "loop"])
def test_clipping_is_torchs_whoever_divides(kernel: str) -> None:
    """Fused AdamW divides as it reads, others are handed clipped gradients; both as clip_grad_norm_ would."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(40, 30)), nn.Parameter(torch.randn(7))]
    copies = [nn.Parameter(weight.detach().clone()) for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=0.1, fused=kernel == "fused", foreach=False)
    plain = torch.optim.AdamW(copies, lr=0.1, fused=False, foreach=False)
    model = nn.ParameterList(weights)
    step = TrainStep(cast(Any, model), optimizer, Precision("fp32", torch.device("cpu"), ""), clip_norm=0.5)
    for factor in (100.0, 1e-3, 3.0):
        for weight, copy in zip(weights, copies, strict=True):
            weight.grad = torch.randn_like(weight) * factor
            copy.grad = weight.grad.clone()
        expected = nn.utils.clip_grad_norm_(copies, 0.5)
        plain.step()
        norm = step.clip_and_update(torch.tensor(0.0)).gradient_norm
        assert norm is not None
        torch.testing.assert_close(norm, expected)
    for weight, copy in zip(weights, copies, strict=True):
        torch.testing.assert_close(weight, copy, rtol=1e-5, atol=1e-6)
