"""The update does not depend on how a global batch is cut, and is that of stock transformers on the whole batch.

Tolerance: a loss may differ by 1e-5 of itself, a gradient by 1e-5 of the model's largest one (fp32, dropout 0).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch, Loader
from seqfit.data.micro_batch import Padding
from seqfit.model.build import load_model
from seqfit.recipe.schema import ModelRecipe
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep

TOLERANCE = 1e-5
LABELS = ["yes", "no", "maybe"]
EXAMPLES = 8
RULES = {
    **{f"padded, {parts} parts": MicroBatchRule("padded", 10**6, examples=EXAMPLES // parts) for parts in (1, 2, 4, 8)},
    **{f"grouped, {parts} parts": MicroBatchRule("grouped", 10**6, examples=EXAMPLES // parts) for parts in (2, 4)},
    "grouped, by tokens": MicroBatchRule("grouped", tokens=70),
    "max_length": MicroBatchRule("max_length", 10**6, examples=4, pad_source_tokens=40, pad_target_tokens=35),
    "multiples of 8": MicroBatchRule("padded", tokens=100, pad_multiple=8),
}
Gradients = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def global_batch(make_split: Any) -> Callable[[str, MicroBatchRule], GlobalBatch]:
    """Targets of 1 to 30 tokens, so that a mean of means would be far off."""
    random = np.random.default_rng(1)
    sources = [random.integers(3, 100, length).tolist() for length in (3, 17, 2, 25, 9, 4, 30, 6)]
    targets = [random.integers(3, 100, length).tolist() for length in (30, 1, 2, 1, 12, 1, 3, 1)]

    def build(name: str, rule: MicroBatchRule) -> GlobalBatch:
        classifier = name == "bert"
        split = make_split(sources, labels=[0, 1, 2, 0, 0, 1, 2, 0]) if classifier else make_split(sources, targets)
        padding = Padding(0) if classifier else Padding(0, 2 if name == "bart" else 0)
        loader = Loader(split, padding, rule, batch_examples=EXAMPLES, batch_tokens=None, seed=0)
        return next(iter(loader.iterate()))

    return build


@pytest.fixture(scope="module")
def fresh_model(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    def load(name: str) -> Any:
        kind = "classifier" if name == "bert" else "text-to-text"
        recipe = ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind, "dropout": 0.0})
        torch.manual_seed(0)  # of the classifier's fresh head
        return load_model(recipe, LABELS).train()

    return load


def gradients_of(model: Any) -> Gradients:
    return {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.grad is not None}


def run_step(model: Any, batch: GlobalBatch) -> tuple[float, Gradients]:
    """Loss and gradients of a real step, read where the optimizer would use them."""
    seen: Gradients = {}

    class Reader(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.update(gradients_of(model))

    step = TrainStep(model, Reader(model.parameters(), lr=1.0), Precision("fp32", torch.device("cpu"), ""), None)
    return float(step(batch).loss), seen


def assert_agree(ours: tuple[float, Gradients], reference: tuple[float, Gradients]) -> None:
    assert ours[0] == pytest.approx(reference[0], rel=TOLERANCE)
    assert ours[1].keys() == reference[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in reference[1].values())
    assert largest > 1e-3
    for name, gradient in reference[1].items():
        assert float((ours[1][name] - gradient).abs().max()) <= TOLERANCE * largest, name


@pytest.fixture(scope="module")
def stock(
    fresh_model: Callable[[str], Any], global_batch: Callable[[str, MicroBatchRule], GlobalBatch]
) -> Callable[[str], tuple[float, Gradients]]:
    """transformers' own loss and its gradients on the whole padded batch."""

    @cache
    def compute(name: str) -> tuple[float, Gradients]:
        model = fresh_model(name)
        (whole,) = global_batch(name, MicroBatchRule("padded", 10**6)).micro_batches
        loss = model(input_ids=whole.source_ids, attention_mask=whole.source_mask, labels=whole.labels).loss
        loss.backward()
        return float(loss.detach()), gradients_of(model)

    return compute


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "umt5", "bart", "bert"])
@pytest.mark.parametrize("rule", RULES)
def test_any_cut_gives_the_loss_and_gradients_of_stock_transformers_on_the_whole_batch(
    name: str,
    rule: str,
    fresh_model: Callable[[str], Any],
    global_batch: Callable[[str, MicroBatchRule], GlobalBatch],
    stock: Callable[[str], tuple[float, Gradients]],
) -> None:
    assert_agree(run_step(fresh_model(name), global_batch(name, RULES[rule])), stock(name))


def test_the_cuts_are_as_many_as_they_say(global_batch: Callable[[str, MicroBatchRule], GlobalBatch]) -> None:
    parts = {rule: len(global_batch("t5", RULES[rule]).micro_batches) for rule in RULES}
    assert [parts[f"padded, {number} parts"] for number in (1, 2, 4, 8)] == [1, 2, 4, 8]
    assert min(number for rule, number in parts.items() if rule != "padded, 1 parts") > 1


def test_a_mean_of_means_would_be_far_off(
    fresh_model: Callable[[str], Any], global_batch: Callable[[str, MicroBatchRule], GlobalBatch]
) -> None:
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
    stock: Callable[[str], tuple[float, Gradients]],
) -> None:
    _, gradients = stock("mt5")
    assert not torch.equal(gradients["lm_head.weight"], gradients["shared.weight"])
    assert "lm_head.weight" not in stock("t5")[1]
