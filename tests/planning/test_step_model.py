from __future__ import annotations

from typing import Any

import pytest
from transformers import BartConfig, BertConfig, T5Config, T5Gemma2Config, T5GemmaConfig

from seqfit.planning.candidates import build_variant
from seqfit.planning.placement import PlanRequest
from seqfit.planning.search import trace_variant
from seqfit.planning.step_model import count_layers
from seqfit.strategy.schema import Strategy


def test_a_step_is_its_batch_and_its_update(make_request: Any) -> None:
    request: PlanRequest = make_request()
    strategy = Strategy(micro_batch_tokens=160)
    model, in_bf16 = (trace_variant(request, build_variant(strategy, name)) for name in ("fp32", "bf16"))
    rates, steps = request.target.rates("fp32"), request.split(strategy, model.batching, request.workload.sample())
    seconds = float(model.step_seconds(steps, rates).mean())
    full, half = (each.rank_work(steps, seconds, rates) for each in (model, in_bf16))
    assert full.step_seconds == pytest.approx(seconds)
    # AdamW reads weights, gradients and both moments, and writes all but the gradients: at least 7 times 4 bytes each.
    assert full.update_seconds > 7 * model.gradient_bytes / rates.update_bytes_per_second
    assert full.micro_batches == 4  # of two examples with 72 tokens each
    assert (full.weight_bytes, full.gradient_bytes) == (model.weight_bytes, model.gradient_bytes)
    assert 0 < model.sizes.in_blocks < full.weight_bytes
    assert half.stored_weight_bytes == full.stored_weight_bytes == full.weight_bytes
    assert half.weight_bytes == full.weight_bytes - model.sizes.in_blocks // 2
    assert full.blocks == 5


def test_layers_of_both_stacks_are_counted() -> None:
    assert count_layers(T5Config(num_layers=3, num_decoder_layers=5)) == 8
    assert count_layers(BartConfig(encoder_layers=3, decoder_layers=2)) == 5
    assert count_layers(BertConfig(num_hidden_layers=4)) == 4
    parts = {"encoder": {"num_hidden_layers": 3}, "decoder": {"num_hidden_layers": 2}}
    assert count_layers(T5GemmaConfig(**parts)) == 5
    assert count_layers(T5Gemma2Config(encoder={"text_config": parts["encoder"]}, decoder=parts["decoder"])) == 5
