from __future__ import annotations

from typing import Any

import pytest

from seqfit.hardware.cards import find_card
from seqfit.planning.device_rules import GPU_RULES
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import uniform
from seqfit.planning.tape import Tape
from seqfit.planning.time_parts import explain_time
from seqfit.planning.timing import rates_of_card
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

RATES = rates_of_card(find_card("rtx3090"), "fp32")


def trace(model_config: Any, **fields: Any) -> Tape:
    strategy = {"batching": "padded", "attention": "eager", **fields}
    spec = StepSpec(
        model_config, ModelRecipe(path="model"), TrainRecipe(), Strategy(**strategy), "fp32", rules=GPU_RULES
    )
    return FakeStep(spec).trace([uniform(2, 128, 16, packed=False)] * 2)


@pytest.mark.parametrize("recompute", ["none", "blocks"])
def test_time_goes_to_modules_and_sums_to_the_step(model_config: Any, recompute: str) -> None:
    parts = explain_time(trace(model_config, recompute=recompute), RATES, 3.0, 2.0)
    assert sum(part.seconds for part in parts) == pytest.approx(2.0)
    assert [part.seconds for part in parts] == sorted((part.seconds for part in parts), reverse=True)
    sides = {
        f"{side} {what}" for side in ("encoder", "decoder") for what in ("attention scores", "feed-forward products")
    }
    assert sides | {"update by the optimizer", "head and loss"} <= {part.name for part in parts}


def test_a_backward_belongs_to_the_module_whose_forward_made_it(model_config: Any) -> None:
    tape = trace(model_config)
    backward = {span.place for span in tape.spans if span.phase == "backward" and span.name == "MmBackward0"}
    assert any("EncDecAttention" in place for place in backward)
    assert any("DenseReluDense" in place for place in backward)


def test_more_micro_batches_leave_the_update_a_smaller_share(model_config: Any) -> None:
    tape = trace(model_config)
    shares = []
    for micro_batches in (2.0, 20.0):
        parts = explain_time(tape, RATES, micro_batches, 1.0)
        shares.append(next(part.seconds for part in parts if part.name == "update by the optimizer"))
    assert shares[1] < shares[0] / 5
