from __future__ import annotations

from typing import Any

import pytest

from seqfit.planning.candidates import Variant, build_variant, list_variants
from seqfit.planning.report import Refusal
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy


def make_variants(*allow: str, **given: Any) -> tuple[list[Variant], list[Refusal]]:
    options = {"on_gpu": True, "has_bf16": True, "kept_tokens": None, "longest": 4096} | given
    train = options.pop("train", TrainRecipe())
    fixed = options.pop("fixed", {})
    return list_variants(ModelRecipe(path="model"), train, allow, fixed, **options)


def labels_of(variants: list[Variant]) -> list[str]:
    return [variant.label for variant in variants]


def test_lossless_strategies_come_before_lossy_ones() -> None:
    labels = labels_of(make_variants("adafactor")[0])
    recompute = [
        "fp32",
        "fp32, gradient checkpointing (every other block)",
        "fp32, gradient checkpointing (every block)",
    ]
    assert labels[:3] == recompute
    assert len(labels) == 6
    assert all("Adafactor" in label for label in labels[3:])


def test_lossy_strategies_are_tried_one_at_a_time() -> None:
    variants, _ = make_variants("adafactor", "8bit", "lora", "freeze", fixed={"recompute": "none"})
    assert labels_of(variants) == [
        "fp32",
        "fp32, Adafactor",
        "fp32, 8-bit AdamW",
        "fp32, frozen embeddings",
        "fp32, LoRA of rank 16",
    ]
    assert len(set(variants)) == 5  # all can be looked up


def test_a_fixed_field_is_not_varied() -> None:
    variants, _ = make_variants("adafactor", "8bit", fixed={"optimizer": "8bit", "recompute": "blocks"})
    assert labels_of(variants) == ["fp32, 8-bit AdamW, gradient checkpointing (every block)"]


def test_short_texts_on_a_gpu_are_tried_with_both_kinds_of_attention() -> None:
    assert any("blockwise" in label for label in labels_of(make_variants(longest=128)[0]))
    assert not any("blockwise" in label for label in labels_of(make_variants(longest=4096)[0]))


def test_the_plainest_and_the_leanest_strategy_are_tried_with_a_trimmed_vocabulary() -> None:
    variants, _ = make_variants("trim", kept_tokens=100)
    trimmed = [variant.label for variant in variants if variant.vocabulary == 100]
    assert trimmed == [
        "fp32, trimmed vocabulary (100 tokens)",
        "fp32, gradient checkpointing (every block), trimmed vocabulary (100 tokens)",
    ]


def test_what_is_not_tried_has_a_reason() -> None:
    reasons = {refusal.what: refusal.why for refusal in make_variants()[1]}
    assert set(reasons) == {"bf16", "Adafactor", "8-bit AdamW", "LoRA", "trimmed vocabulary", "optimizer in backward"}
    assert "allow=[8bit]" in reasons["8-bit AdamW"]
    assert {refusal.allow for refusal in make_variants()[1]} == {"bf16", "adafactor", "8bit", "lora", "trim", ""}
    assert "train.clip_norm is 1. Clipping needs the norm of all gradients" in reasons["optimizer in backward"]
    assert Refusal("bf16", "the GPU has no bf16 in hardware") in make_variants(has_bf16=False)[1]


def test_8_bits_are_traced_as_plain_adamw() -> None:
    variant = build_variant(Strategy(optimizer="8bit", freeze=["embeddings"]), "fp32")
    assert variant.traced == build_variant(Strategy(freeze=["embeddings"]), "fp32")
    assert variant.traced.traced == variant.traced


@pytest.mark.parametrize(
    ("train", "given", "reason"),
    [
        ({}, {}, "train.clip_norm is 1"),
        ({"when_not_finite": "skip", "clip_norm": None}, {}, "train.when_not_finite is 'skip'"),
        ({"clip_norm": None}, {"fixed": {"precision": "fp16"}}, "strategy.precision is 'fp16'"),
    ],
)
def test_the_optimizer_in_the_backward_is_left_out_where_training_refuses_it(
    train: dict[str, Any], given: dict[str, Any], reason: str
) -> None:
    variants, refusals = make_variants("fp16", train=TrainRecipe.model_validate(train), **given)
    assert variants
    assert not any(variant.strategy.optimizer_in_backward for variant in variants)
    assert reason in next(refusal.why for refusal in refusals if refusal.what == "optimizer in backward")


def test_fp16_keeps_fp32_its_updates_in_the_backward() -> None:
    variants, _ = make_variants("fp16", has_bf16=False, train=TrainRecipe(clip_norm=None))
    precisions = {variant.precision for variant in variants if variant.strategy.optimizer_in_backward}
    assert precisions == {"fp32"}
    assert {variant.precision for variant in variants} == {"fp16", "fp32"}


def test_how_processes_share_the_work_is_not_part_of_a_variant() -> None:
    shared = Strategy(parallel="fsdp", sharding="zero3", offload=True, recompute="blocks")
    assert build_variant(shared, "fp32") == build_variant(Strategy(recompute="blocks"), "fp32")
