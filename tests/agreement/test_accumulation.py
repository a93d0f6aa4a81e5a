"""The update does not depend on how a global batch is split, and is that of stock transformers on the whole batch.

Packed or padded, one micro-batch or eight, with the loss in chunks or from all logits. Tolerance: see steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch
from seqfit.model.loss import LossRule
from tests.agreement.steps import TOLERANCE, Update, assert_agree, run_step

EXAMPLES = 8
PARTS = (1, 2, 4, 8)
RULES = {
    **{f"packed, {parts} parts": MicroBatchRule("packed", 10**6, examples=EXAMPLES // parts) for parts in PARTS},
    "packed, by tokens": MicroBatchRule("packed", tokens=50),
    **{f"padded, {parts} parts": MicroBatchRule("padded", 10**6, examples=EXAMPLES // parts) for parts in PARTS},
    **{f"grouped, {parts} parts": MicroBatchRule("grouped", 10**6, examples=EXAMPLES // parts) for parts in (2, 4)},
    "grouped, by tokens": MicroBatchRule("grouped", tokens=70),
    "max_length": MicroBatchRule("max_length", 10**6, examples=4, pad_source_tokens=40, pad_target_tokens=35),
    "multiples of 8": MicroBatchRule("padded", tokens=100, pad_multiple=8),
}
Batches = Callable[[str, MicroBatchRule], GlobalBatch]


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "umt5", "deep-decoder", "bart", "marian", "bert"])
@pytest.mark.parametrize("rule", RULES)
def test_any_split_gives_the_loss_and_gradients_of_stock_transformers_on_the_whole_batch(
    name: str, rule: str, fresh_model: Callable[[str], Any], global_batch: Batches, stock: Callable[[str], Update]
) -> None:
    assert_agree(run_step(fresh_model(name), global_batch(name, RULES[rule])), stock(name))


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5", "bart", "bert"])
@pytest.mark.parametrize("rule", ["packed, 2 parts", "padded, 2 parts"])
def test_the_loss_from_all_logits_is_that_from_chunks(
    name: str, rule: str, fresh_model: Callable[[str], Any], global_batch: Batches
) -> None:
    full, chunked = (
        run_step(fresh_model(name), global_batch(name, RULES[rule]), LossRule(0.1, 1e-3, chunked=chunked))
        for chunked in (False, True)
    )
    assert_agree(chunked, full)


def test_the_splits_are_as_many_as_they_say(global_batch: Batches) -> None:
    parts = {rule: len(global_batch("t5", RULES[rule]).micro_batches) for rule in RULES}
    for kind in ("padded", "packed"):
        assert [parts[f"{kind}, {number} parts"] for number in PARTS] == list(PARTS)
    assert min(number for rule, number in parts.items() if not rule.endswith(", 1 parts")) > 1


def test_packed_micro_batches_have_no_padding(global_batch: Batches) -> None:
    packed, padded = (global_batch("t5", RULES[f"{kind}, 2 parts"]) for kind in ("packed", "padded"))
    assert packed.padded_tokens == 0 < padded.padded_tokens
    assert packed.source_tokens == padded.source_tokens == sum(b.source_ids.numel() for b in packed.micro_batches)


def test_a_mean_of_means_would_be_far_off(fresh_model: Callable[[str], Any], global_batch: Batches) -> None:
    """What the tests above would catch: each micro-batch divided by its own tokens."""
    model = fresh_model("t5")
    batch = global_batch("t5", RULES["padded, 8 parts"])
    means = [
        model(input_ids=part.source_ids, attention_mask=part.source_mask, labels=part.labels).loss
        for part in batch.micro_batches
    ]
    wrong = float(torch.stack(means).mean().detach())
    right, _ = run_step(model, batch)
    assert abs(wrong - right) / right > 1000 * TOLERANCE


def test_the_head_and_the_embeddings_of_an_untied_model_have_gradients_of_their_own(
    stock: Callable[[str], Update],
) -> None:
    _, gradients = stock("mt5")
    assert not torch.equal(gradients["lm_head.weight"], gradients["shared.weight"])
    assert "lm_head.weight" not in stock("t5")[1]
