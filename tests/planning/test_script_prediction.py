from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, BertConfig, T5Config, T5GemmaConfig

from seqfit.conversion import ScriptSettings
from seqfit.hardware.cards import find_card
from seqfit.model.load import ModelConfig
from seqfit.planning.placement import PlanRequest
from seqfit.planning.report import PlannedStrategy, PlanReport, ScriptPlan
from seqfit.planning.script_prediction import predict_script
from seqfit.planning.shape import Workload, assume_workload
from seqfit.planning.target import card_target
from seqfit.planning.trainer_step import (
    build_script_strategy,
    build_trainer_strategy,
    choose_attention,
    find_limits,
    find_weights_type,
    has_sdpa,
    name_optimizer,
    split_rows,
)
from seqfit.recipe.schema import Recipe
from seqfit.validation import load_checked_recipe

Make = Callable[..., PlanRequest]
Predict = Callable[..., ScriptPlan]
WIDE = {"max_source_tokens": 512, "max_target_tokens": 16, "padding": "max_length", "target_padding": "max_length"}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    values = {
        "model": {"path": "model"},
        "task": {"name": "generate", "source": "{question}", "target": "{answer}"},
        "data": {"path": "rows.jsonl"},
    }
    return load_checked_recipe(values)


@pytest.fixture
def predict(make_request: Make, recipe: Recipe) -> Predict:
    def predict(gpus: int = 1, workload: Workload | None = None, card: str = "rtx3090", **settings: Any) -> ScriptPlan:
        target = card_target(find_card(card), gpus)
        request = make_request(target=target, workload=workload or assume_workload(8, 64, 8, total_steps=100))
        script = ScriptSettings(**{"per_device_examples": 2, **settings})
        return predict_script(script, recipe, request, {}, is_assumed=True)

    return predict


def test_padding_to_max_length_and_eager_attention_are_the_cause_that_is_named(predict: Predict) -> None:
    plan = predict(**WIDE, attention="eager", per_device_examples=8)
    assert plan.cause_sentence.startswith("max_length=512: the encoder's attention scores take ")
    assert plan.cause_sentence.endswith(f" of {plan.cause_sentence.split(' of ')[1]}")
    scores = 2 * 4 * 8 * 512**2 * 4  # layers, heads, examples, pairs, bytes of fp32
    assert scores < plan.cause_bytes < plan.predicted_bytes[0]
    shorter = predict(**{**WIDE, "max_source_tokens": 128}, attention="eager", per_device_examples=8)
    assert shorter.predicted_bytes[0] < plan.predicted_bytes[0]


def test_weights_are_the_cause_of_a_small_batch(predict: Predict) -> None:
    plan = predict(per_device_examples=1, optimizer="adamw_torch")
    assert plan.setting.endswith("trained weights with adamw_torch")
    assert plan.cause == "weights, gradients and optimizer state take"


def test_logits_are_the_cause_where_the_vocabulary_is_large(
    make_request: Make, recipe: Recipe, model_config: ModelConfig
) -> None:
    model_config.config.vocab_size = 60_000
    request = make_request(model_config=model_config)
    script = ScriptSettings(per_device_examples=16, max_target_tokens=64, target_padding="max_length")
    plan = predict_script(script, recipe, request, {}, is_assumed=True)
    assert plan.setting == "per_device_train_batch_size=16, 64 target tokens"
    assert plan.cause == "logits over 60,000 tokens and their loss take"


def test_one_process_that_sees_several_gpus_is_data_parallel_with_more_on_the_first(predict: Predict) -> None:
    one, two = predict(**WIDE), predict(2, **WIDE)
    assert (one.layout, two.layout) == ("one GPU", "nn.DataParallel x 2")
    first, other = two.predicted_bytes
    assert first >= one.predicted_bytes[0] > other
    assert (one.examples_per_step, two.examples_per_step) == (2, 4)
    assert two.total_steps == one.total_steps / 2
    assert two.predicted_step_seconds > one.predicted_step_seconds
    assert any("torchrun would make it ddp" in text for text in two.assumptions)
    assert predict(2, **WIDE, visible_gpus=1).layout == "one GPU"


def test_the_first_of_several_gpus_holds_gradients_twice_where_activations_are_few(
    make_request: Make, recipe: Recipe, model_config: ModelConfig
) -> None:
    model_config.config.d_ff = 65_536  # weights that outweigh everything else
    script = ScriptSettings(per_device_examples=1, optimizer="adamw_hf")  # whose update needs little

    def predict(gpus: int) -> int:
        target = card_target(find_card("rtx3090"), gpus)
        request = make_request(model_config=model_config, target=target, workload=assume_workload(8, 8, 4))
        return predict_script(script, recipe, request, {}, is_assumed=True).predicted_bytes[0]

    assert predict(2) > predict(1)


def test_processes_that_are_started_are_ddp_and_each_takes_as_much(predict: Predict) -> None:
    plan = predict(2, **WIDE, processes=2)
    assert plan.layout == "ddp x 2"
    assert len(set(plan.predicted_bytes)) == 1
    assert "on each GPU" in plan.answer


def test_naive_model_parallelism_shares_memory_but_not_time(predict: Predict) -> None:
    one, two = predict(**WIDE), predict(2, **WIDE, naive_pipeline=True)
    assert two.layout == "one GPU at a time of 2"
    assert two.predicted_bytes[1] < two.predicted_bytes[0] < one.predicted_bytes[0]
    assert two.predicted_step_seconds == one.predicted_step_seconds
    assert two.examples_per_step == one.examples_per_step


def test_accumulation_makes_a_step_of_several_micro_batches(predict: Predict) -> None:
    one, four = predict(**WIDE), predict(**WIDE, accumulation=4)
    assert four.examples_per_step == 4 * one.examples_per_step
    assert one.predicted_step_seconds * 2 < four.predicted_step_seconds < one.predicted_step_seconds * 4


def test_checkpointing_takes_less_memory_and_more_time(predict: Predict) -> None:
    wide = {**WIDE, "per_device_examples": 8}
    plain, recomputed = predict(**wide), predict(**wide, checkpointing=True)
    assert recomputed.predicted_bytes[0] < plain.predicted_bytes[0]
    assert recomputed.predicted_step_seconds > plain.predicted_step_seconds
    assert "gradient checkpointing" in recomputed.settings


def test_8_bits_quantized_and_half_weights_take_less(
    make_request: Make, recipe: Recipe, model_config: ModelConfig
) -> None:
    model_config.config.vocab_size, model_config.config.d_ff = 20_000, 4096

    def predict(**settings: Any) -> int:
        script = ScriptSettings(per_device_examples=1, **settings)
        request = make_request(model_config=model_config)
        return predict_script(script, recipe, request, {}, is_assumed=True).predicted_bytes[0]

    plain = predict()
    for settings in ({"optimizer": "adamw_bnb_8bit"}, {"quantized_bits": 4}, {"weights": "bfloat16"}):
        assert predict(**settings) < plain


def test_what_does_not_fit_says_how_much_is_missing(make_request: Make, recipe: Recipe) -> None:
    request = make_request()
    small = replace(request, target=replace(request.target, capacity_bytes=request.target.context_bytes))
    plan = predict_script(ScriptSettings(name="train.py"), recipe, small, {}, is_assumed=True)
    assert not plan.fits
    assert plan.answer.startswith("train.py as it is, on one GPU: does not fit (misses by ")


def test_bf16_without_hardware_for_it_is_said(predict: Predict) -> None:
    assert any("bf16 is emulated on" in text for text in predict(card="t4", precision="bf16", **WIDE).assumptions)
    assert not predict(precision="bf16", **WIDE).assumptions


def test_a_classifier_is_predicted_too(make_request: Make, recipe: Recipe) -> None:
    config = BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    request = make_request(
        model_config=ModelConfig(config, {}, AutoModelForSequenceClassification),
        model=recipe.model.model_copy(update={"kind": "classifier"}),
        workload=assume_workload(8, 64, 1, is_classifier=True),
    )
    plan = predict_script(
        ScriptSettings(padding="max_length", max_source_tokens=128), recipe, request, {}, is_assumed=True
    )
    assert "padded to 128 tokens" in plan.settings


def test_targets_of_one_kind_are_traced_once(make_request: Make, recipe: Recipe) -> None:
    request, traces = make_request(), {}
    plans = [
        predict_script(
            ScriptSettings(), recipe, replace(request, target=card_target(find_card(card), 1)), traces, is_assumed=True
        )
        for card in ("rtx3090", "a10g")
    ]
    assert len(traces) == 1
    assert plans[0].predicted_bytes == plans[1].predicted_bytes


def test_a_plan_with_a_script_is_stored_and_read_again(predict: Predict) -> None:
    script = predict(2, **WIDE)
    row = PlannedStrategy("fp32", "one GPU", 512, 1.0, 2, 1.0, fits=False, overrides=[])
    report = PlanReport("GPU", "gpu", 1, 1.0, 1, "", None, None, None, [row], [], [], [], script=script)
    assert PlanReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("settings", "model_type", "expected"),
    [
        ({}, "t5", "sdpa"),
        ({"before_5": "evaluation_strategy="}, "t5", "eager"),
        ({"before_5": "evaluation_strategy="}, "bert", "sdpa"),
        ({"attention": "eager"}, "bert", "eager"),
        ({"attention": "sdpa", "before_5": "no_cuda="}, "t5", "sdpa"),
    ],
)
def test_t5_had_eager_attention_until_transformers_5(settings: dict[str, str], model_type: str, expected: str) -> None:
    config = T5Config() if model_type == "t5" else BertConfig()
    assert choose_attention(ScriptSettings(**settings), config) == expected


def test_a_model_without_sdpa_is_eager() -> None:
    without = ModelConfig(T5GemmaConfig(), {}, AutoModelForSeq2SeqLM)
    assert not has_sdpa(without)
    assert has_sdpa(ModelConfig(T5Config(), {}, AutoModelForSeq2SeqLM))
    assert choose_attention(ScriptSettings(), without.config, has_sdpa=False) == "eager"


def test_transformers_defaults_have_changed_with_5() -> None:
    old = ScriptSettings(before_5="evaluation_strategy=")
    assert (name_optimizer(old), name_optimizer(ScriptSettings())) == ("adamw_torch", "adamw_torch_fused")
    assert build_script_strategy(old, T5Config()).optimizer_kernel == "foreach"
    saved = {"dtype": "bfloat16"}
    assert (find_weights_type(old, saved), find_weights_type(ScriptSettings(), saved)) == ("float32", "bfloat16")
    assert find_weights_type(ScriptSettings(weights="float32"), saved) == "float32"


def test_micro_batches_are_those_of_the_script_padded_as_it_pads() -> None:
    lengths = np.array([5, 9, 3, 7, 20, 2], dtype=np.int32)
    workload = Workload(lengths, lengths // 2, (np.arange(6),), is_classifier=False, total_steps=1)
    settings = ScriptSettings(per_device_examples=2, accumulation=2, pad_multiple=8)
    strategy = build_script_strategy(settings, T5Config())
    first, second = split_rows(settings, strategy, workload, find_limits(settings), is_assumed=False)[:2]
    assert [shape.sources for shape in first] == [(16, 16), (8, 8)]
    assert second[0].sources == (24, 24)
    padded = replace(settings, padding="max_length", max_source_tokens=32, pad_multiple=1)
    whole = split_rows(
        padded, build_script_strategy(padded, T5Config()), workload, find_limits(padded), is_assumed=False
    )
    assert {shape.sources for step in whole for shape in step} == {(32, 32)}
    assert [max(shape.targets or ()) for shape in whole[0]] == [4, 3]  # those are padded to the longest


def test_sorted_by_length_the_longest_texts_are_together() -> None:
    lengths = np.arange(1, 41, dtype=np.int32)
    workload = Workload(lengths, lengths, (np.arange(40),), is_classifier=False, total_steps=1)
    settings = ScriptSettings(per_device_examples=4, sorts_by_length=True)
    steps = split_rows(
        settings, build_trainer_strategy(micro_batch_examples=4), workload, (None, None), is_assumed=False
    )
    assert steps[0][0].sources == (40,) * 4
    assert steps[-1][0].sources == (4,) * 4
