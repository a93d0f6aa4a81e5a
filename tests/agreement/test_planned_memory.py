"""Predicted equals measured: the peak of allocated bytes of a step on fake tensors, and of the same step for real.

Tolerance: 1% of the measured peak. What differs are scalars and, in bf16, workspaces of the CPU's kernels. A processor
without bf16 instructions has a rule of its own: with ONEDNN_MAX_CPU_ISA=AVX512_CORE any processor with AVX-512 is one.
"""

from __future__ import annotations

from typing import Any

import pytest
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    MT5Config,
    PreTrainedConfig,
    T5Config,
)

from seqfit.model.load import ModelConfig
from seqfit.model.loss import LossRule
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec, build_real_step, measure_peak_bytes
from seqfit.planning.shape import Shape, draw_batch
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

TOLERANCE = 0.01
T5_SHAPE = {"vocab_size": 2000, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
BERT_SHAPE = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
SOURCES, TARGETS = (180, 65, 90, 121), (20, 3, 45, 9)


def build_tiny_config(model: str) -> ModelConfig:
    if model == "bert":
        return ModelConfig(BertConfig(**BERT_SHAPE, vocab_size=2000), {}, AutoModelForSequenceClassification)
    if model == "mt5":
        config: PreTrainedConfig = MT5Config(**T5_SHAPE, feed_forward_proj="gated-gelu", decoder_start_token_id=0)
        return ModelConfig(config, {"tie_word_embeddings": False}, AutoModelForSeq2SeqLM)
    return ModelConfig(T5Config(**T5_SHAPE, decoder_start_token_id=0), {}, AutoModelForSeq2SeqLM)


@pytest.mark.parametrize(
    ("model", "micro_batches", "precision", "optimizer", "strategy", "lora"),
    [
        ("t5", 1, "fp32", "adamw", {}, None),
        ("t5", 1, "fp32", "adamw", {"batching": "padded", "loss": "full", "attention": "sdpa"}, None),
        ("t5", 2, "fp32", "adafactor", {"recompute": "alternate"}, None),
        ("t5", 1, "bf16", "adamw", {"batching": "padded", "recompute": "blocks"}, None),
        ("mt5", 1, "fp32", "adamw", {"batching": "padded", "loss": "full", "attention": "eager"}, None),
        ("mt5", 2, "bf16", "adafactor", {}, None),
        ("mt5", 1, "fp32", "adamw", {"recompute": "blocks"}, {"rank": 4}),
        ("bert", 2, "fp32", "adamw", {"batching": "padded"}, None),
        ("bert", 1, "bf16", "adafactor", {"recompute": "blocks"}, None),
    ],
)
def test_a_steps_peak_is_the_one_that_was_planned(
    model: str,
    micro_batches: int,
    precision: str,
    optimizer: str,
    strategy: dict[str, Any],
    lora: dict[str, Any] | None,
) -> None:
    kind = "classifier" if model == "bert" else "text-to-text"
    spec = StepSpec(
        build_tiny_config(model),
        ModelRecipe.model_validate({"path": "x", "kind": kind, "lora": lora}),
        TrainRecipe.model_validate({"optimizer": {"name": optimizer}}),
        Strategy.model_validate(strategy),
        precision,
        rules_for("cpu"),
    )
    packed = spec.strategy.batching == "packed"
    shapes = [Shape(SOURCES, None if kind == "classifier" else TARGETS, packed)] * micro_batches
    step, batch = build_real_step(spec).step, draw_batch(shapes)
    step.run(batch)  # the first one makes the optimizer's state
    measured_bytes = measure_peak_bytes(step, batch)
    assert FakeStep(spec).trace(shapes).peak_bytes == pytest.approx(measured_bytes, rel=TOLERANCE)


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_so_is_the_peak_with_a_head_for_scores_or_several_labels(problem_type: str) -> None:
    config = BertConfig(**BERT_SHAPE, vocab_size=2000, problem_type=problem_type)
    config.num_labels = 1 if problem_type == "regression" else 7
    spec = StepSpec(
        ModelConfig(config, {}, AutoModelForSequenceClassification),
        ModelRecipe(path="x", kind="classifier"),
        TrainRecipe(),
        Strategy(batching="padded"),
        "fp32",
        rules_for("cpu"),
    )
    shapes = [Shape(SOURCES, None, packed=False)]
    step, batch = build_real_step(spec).step, draw_batch(shapes, LossRule.blank_label(config))
    step.run(batch)
    assert FakeStep(spec).trace(shapes).peak_bytes == pytest.approx(measure_peak_bytes(step, batch), rel=TOLERANCE)
