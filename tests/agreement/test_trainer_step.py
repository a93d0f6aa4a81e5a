"""A Trainer's step as it is predicted takes what a step of plain transformers takes: the peak of allocated bytes.

The real one is what the Trainer does in a step: a forward with labels for each micro-batch, backward, the norm, the
update, gradients dropped. Tolerance: 1% of the measured peak.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor

from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import uniform
from seqfit.planning.trainer_step import build_trainer_strategy
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step import TrainStep, measure_peak
from tests.agreement.test_planned_memory import TOLERANCE, build_tiny_config

EXAMPLES, SOURCE, TARGET = 4, 180, 45


def draw_inputs(kind: str) -> dict[str, torch.Tensor]:
    """One example is shorter, because a mask of ones takes another path."""
    mask = torch.ones(EXAMPLES, SOURCE, dtype=torch.int64)
    mask[0, SOURCE // 2 :] = 0
    labels = torch.randint(3, 99, (EXAMPLES, TARGET)) if kind != "bert" else torch.zeros(EXAMPLES, dtype=torch.int64)
    return {"input_ids": torch.randint(3, 99, (EXAMPLES, SOURCE)), "attention_mask": mask, "labels": labels}


def measure_plain_step(spec: StepSpec, kind: str, micro_batches: int) -> int:
    model = spec.model_config.build(spec.model).to(getattr(torch, spec.weights)).train()
    if spec.strategy.attention == "eager":
        model.set_attn_implementation("eager")
    if spec.strategy.recompute == "blocks":
        model.gradient_checkpointing_enable()
    optimizer: torch.optim.Optimizer
    if spec.train.optimizer.name == "adafactor":
        optimizer = Adafactor(model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    inputs = [draw_inputs(kind) for _ in range(micro_batches)]

    def run() -> None:
        for one in inputs:
            with torch.autocast("cpu", torch.bfloat16, enabled=spec.precision == "bf16"):
                loss = model(**one, **({} if kind == "bert" else {"use_cache": False})).loss / micro_batches
            loss.backward()
            del loss
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    run()
    held = SimpleNamespace(micro_batches=[SimpleNamespace(**one) for one in inputs])
    with measure_peak(cast(TrainStep, SimpleNamespace(model=model, optimizer=optimizer)), cast(Any, held)) as peak:
        run()
    return peak.bytes


@pytest.mark.parametrize(
    ("kind", "micro_batches", "precision", "weights", "optimizer", "fields"),
    [
        ("t5", 1, "fp32", "float32", "adamw", {"attention": "eager"}),
        ("t5", 2, "fp32", "float32", "adafactor", {}),
        ("t5", 1, "bf16", "float32", "adamw", {"attention": "eager"}),
        ("mt5", 1, "fp32", "float32", "adamw", {"recompute": "blocks"}),
        ("bert", 2, "fp32", "float32", "adamw", {}),
        ("bert", 1, "fp32", "bfloat16", "adamw", {}),
    ],
)
def test_a_trainers_step_takes_what_is_predicted_of_it(
    kind: str, micro_batches: int, precision: str, weights: str, optimizer: str, fields: dict[str, str]
) -> None:
    spec = StepSpec(
        build_tiny_config(kind),
        ModelRecipe.model_validate(
            {"path": "x", "kind": "classifier" if kind == "bert" else "text-to-text", "weights": "random"}
        ),
        TrainRecipe.model_validate({"optimizer": {"name": optimizer}}),
        build_trainer_strategy(optimizer_kernel="foreach" if optimizer == "adamw" else "auto", **fields),
        precision,
        rules_for("cpu"),
        weights,
    )
    shapes = [uniform(EXAMPLES, SOURCE, None if kind == "bert" else TARGET, packed=False)] * micro_batches
    predicted_bytes = FakeStep(spec).trace(shapes).peak_bytes
    assert predicted_bytes == pytest.approx(measure_plain_step(spec, kind, micro_batches), rel=TOLERANCE)
