from __future__ import annotations

from typing import Any

from seqfit.planning.device_rules import CPU_RULES
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.memory import explain_peak, is_scores, measure_tape, trace_timeline
from seqfit.planning.report import PeakBreakdown
from seqfit.planning.shape import uniform
from seqfit.planning.tape import ACTIVATIONS, Tape
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy


def trace(model_config: Any, length: int, **strategy: Any) -> Tape:
    fields = {"batching": "padded", "attention": "eager", "loss": "full", **strategy}
    spec = StepSpec(model_config, ModelRecipe(path="model"), TrainRecipe(), Strategy(**fields), "fp32")
    return FakeStep(spec).trace([uniform(1, length, 4, packed=fields["batching"] == "packed")])


def explain(tape: Tape) -> PeakBreakdown:
    return explain_peak(tape, "fp32", measure_tape(tape, CPU_RULES), fits=True)


def test_long_texts_with_eager_attention_name_the_scores_as_the_cause(model_config: Any) -> None:
    peak = explain(trace(model_config, 1024))
    assert peak.cause.startswith("attention scores")
    encoder = next(part for part in peak.parts[0].parts if part.name == "encoder blocks")
    assert encoder.parts[0].name == "attention scores and bias"


def test_blockwise_attention_keeps_no_scores(model_config: Any) -> None:
    tape = trace(model_config, 1024, batching="packed", attention="blockwise")
    kept = [block for block in tape.live_at_peak() if block.category == ACTIVATIONS and is_scores(block)]
    one_layer = 4 * 1024 * 1024 * 4  # heads, queries, keys, bytes
    assert sum(block.bytes for block in kept) < one_layer / 2  # a band of biases for each stack


def test_parts_add_up_to_the_peak(model_config: Any) -> None:
    peak = explain(trace(model_config, 64))
    assert sum(part.bytes for part in peak.parts) == peak.allocated_bytes
    for part in peak.parts:
        assert not part.parts or sum(child.bytes for child in part.parts) == part.bytes


def test_the_timeline_holds_the_peak_and_all_phases(model_config: Any) -> None:
    tape = trace(model_config, 64)
    phases, timeline = trace_timeline(tape)
    totals = [sum(values) for values in zip(*timeline.values(), strict=True)]
    assert max(totals) == tape.peak_bytes
    assert {"forward", "backward", "update"} <= set(phases)
