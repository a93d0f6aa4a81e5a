"""Packed rows together with what else a model may run under: recompute, adapters, bf16, DDP, FSDP2.

Tolerance: see steps.py; recompute is exact, bf16 differs from padded bf16 by 2% at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.packing import PackedModel, make_lean
from seqfit.model.trainable import add_adapters
from seqfit.parallel.execution import enable_recompute
from seqfit.recipe.schema import LoraRecipe
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep
from tests.agreement.steps import assert_agree, run_step

PACKED, PADDED = MicroBatchRule("packed", tokens=60), MicroBatchRule("padded", tokens=10**6)
Batches = Callable[[str, MicroBatchRule], GlobalBatch]
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5", "bart", "bert"])
@pytest.mark.parametrize("which", ["blocks", "alternate"])
def test_recompute_gives_the_same_update_to_the_last_bit_with_dropout_on(
    name: str, which: Any, fresh_model: Callable[..., Any], global_batch: Batches
) -> None:
    updates = []
    for recompute in ("none", which):
        model = fresh_model(name, 0.1)
        make_lean(model, CPU)
        assert (enable_recompute(model, recompute) > 0) is (recompute != "none")
        torch.manual_seed(5)
        updates.append(run_step(model, global_batch(name, PACKED)))
    assert updates[0][0] == updates[1][0]
    assert all(torch.equal(updates[0][1][key], gradient) for key, gradient in updates[1][1].items())


@pytest.mark.parametrize("name", ["t5", "bert"])
def test_dropout_is_on_in_packed_rows(name: str, fresh_model: Callable[..., Any], global_batch: Batches) -> None:
    losses = []
    for seed in (1, 1, 2):
        model = fresh_model(name, 0.1)
        make_lean(model, CPU)
        torch.manual_seed(seed)
        losses.append(run_step(model, global_batch(name, PACKED))[0])
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("name", ["t5", "umt5", "bart", "bert"])
def test_adapters_get_the_same_gradients_in_packed_and_in_padded_rows(
    name: str, fresh_model: Callable[..., Any], global_batch: Batches
) -> None:
    updates = []
    for rule in (PADDED, PACKED):
        model = fresh_model(name)
        add_adapters(model, LoraRecipe(rank=4))
        torch.manual_seed(2)
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.1)
        updates.append(run_step(model, global_batch(name, rule)))
    assert any("lora_A" in key for key in updates[0][1])
    assert_agree(updates[1], updates[0])


@pytest.mark.parametrize("name", ["t5", "mt5", "bert"])
def test_bf16_stays_near_padded_bf16(name: str, fresh_model: Callable[..., Any], global_batch: Batches) -> None:
    losses = []
    for rule in (PADDED, PACKED):
        model = fresh_model(name)
        wrapped = LossModel(model, LossRule(), PackedModel(model) if rule is PACKED else None)
        step = TrainStep(wrapped, torch.optim.SGD(model.parameters(), lr=0.0), Precision("bf16", CPU, ""), 1.0)
        outcome = step.run(global_batch(name, rule))
        losses.append((float(outcome.loss), float(outcome.gradient_norm)))  # type: ignore[arg-type]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
