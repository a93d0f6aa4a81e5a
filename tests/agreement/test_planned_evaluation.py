"""Predicted equals measured: the peak of allocated bytes of an evaluation, from a few passes of shallow models on fake
tensors, and of the whole evaluation for real.

Tolerance: 4%, as of the peaks that polynomials give. The line through two depths, the piece that is taken for the
largest and the rounding of its neighbours are in it; answers go on to the length limit, because weights are random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    PreTrainedConfig,
    T5Config,
)

from seqfit.generation import generator as generator_module
from seqfit.generation.generator import Generator
from seqfit.generation.texts import generate_split
from seqfit.model.load import ModelConfig
from seqfit.planning.device_rules import rules_for
from seqfit.planning.evaluation_cost import EvaluationModel
from seqfit.planning.evaluation_work import EvaluationWork
from seqfit.planning.fake_step import StepSpec, build_real_step
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step.precision import Precision
from seqfit.step.profiler import measure_allocated
from seqfit.strategy.schema import Strategy
from seqfit.tasks import ClassifierHead

TOLERANCE = 0.04
ROWS, BATCH_TOKENS = 40, 600
T5_SHAPE = {"vocab_size": 700, "d_model": 96, "d_kv": 24, "d_ff": 192, "num_layers": 5, "num_heads": 4}
BART_SHAPE = {"vocab_size": 700, "d_model": 96, "encoder_layers": 4, "decoder_layers": 2, "encoder_ffn_dim": 192}
BART_SHAPE |= {"decoder_ffn_dim": 192, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
BERT_SHAPE = {"vocab_size": 700, "hidden_size": 96, "num_hidden_layers": 5, "num_attention_heads": 4}
BERT_SHAPE |= {"intermediate_size": 192}


class Rows:
    """A validation split of random tokens."""

    def __init__(self, *, has_targets: bool) -> None:
        draw = np.random.default_rng(0)
        self.source_lengths = draw.integers(20, 90, ROWS).astype(np.int32)
        self.target_lengths = draw.integers(3, 14, ROWS).astype(np.int32) * has_targets

    def token_ids(self, row: int) -> tuple[Any, Any]:
        draw = np.random.default_rng(row)
        return draw.integers(3, 99, self.source_lengths[row]), draw.integers(3, 99, self.target_lengths[row])

    def label(self, _row: int) -> int:
        return 0

    def target_language(self, _row: int) -> None:
        return None


class Texts:
    """In the place of a tokenizer."""

    pad_token_id = 0

    def batch_decode(self, ids: torch.Tensor, *, skip_special_tokens: bool) -> list[str]:
        assert skip_special_tokens
        return [""] * len(ids)


def build_spec(name: str, precision: str) -> StepSpec:
    config: PreTrainedConfig
    if name == "bert":
        config, auto = BertConfig(**BERT_SHAPE), AutoModelForSequenceClassification
    elif name == "bart":
        config, auto = BartConfig(**BART_SHAPE, forced_eos_token_id=None), AutoModelForSeq2SeqLM
    else:
        config, auto = T5Config(**T5_SHAPE, decoder_start_token_id=0), AutoModelForSeq2SeqLM
    kind: Any = "classifier" if name == "bert" else "text-to-text"
    model = ModelRecipe(path="x", kind=kind)
    return StepSpec(ModelConfig(config, {}, auto), model, TrainRecipe(), Strategy(), precision, rules_for("cpu"))


@pytest.mark.parametrize(
    ("name", "precision", "beams", "limit"),
    [
        ("t5", "fp32", 1, 30),
        ("t5", "fp32", 1, 9),
        ("t5", "bf16", 1, 30),
        ("t5", "fp32", 3, 12),
        ("bart", "fp32", 1, 30),
        ("bart", "fp32", 3, 12),
        ("bert", "fp32", 1, 1),
    ],
)
def test_the_peak_of_an_evaluation_is_the_one_that_was_planned(
    name: str, precision: str, beams: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator_module, "DECODED_ROWS", 24)  # two searches
    monkeypatch.setattr("seqfit.generation.passes.DECODED_ROWS", 24)
    spec, rows = build_spec(name, precision), Rows(has_targets=name != "bert")
    step = build_real_step(spec).step
    model = step.parallel.model.model
    model.generation_config.update(eos_token_id=None) if name != "bert" else None  # no answer ends early
    generator = Generator(
        model,
        Texts(),  # type: ignore[arg-type]
        Precision(precision, torch.device("cpu"), "a test"),
        beams,
        limit,
        BATCH_TOKENS,
        ClassifierHead(("yes", "no")) if name == "bert" else None,
        decoded_rows=24,
    )
    generate_split(generator, rows, np.arange(3))  # type: ignore[arg-type]
    lasting = [*model.parameters(), *model.buffers()]
    with measure_allocated(lasting) as measured:
        generate_split(generator, rows, np.arange(ROWS))  # type: ignore[arg-type]
    work = EvaluationWork(rows.source_lengths, rows.target_lengths, 1, BATCH_TOKENS, beams, limit)
    weights = sum(weight.numel() * weight.element_size() for weight in {id(w): w for w in lasting}.values())
    predicted = EvaluationModel(spec, work).working_bytes + weights
    assert predicted == pytest.approx(measured.bytes, rel=TOLERANCE)
