"""A head's loss and gradients are transformers' own, packed as well as padded, whole as well as in micro-batches.

Tolerance: see steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch, Loader, Padding
from seqfit.model.load import load_model
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead
from tests.agreement.conftest import gradients_of
from tests.agreement.steps import assert_agree, run_step

HEADS = {
    "classes": (ClassifierHead(("a", "b", "c")), [0, 1, 2, 0, 0, 1, 2, 0]),
    "score": (ClassifierHead(("score",), "regression"), [0.5, 3.0, -1.25, 4.0, 2.0, 0.0, 5.0, 1.0]),
    "labels": (
        ClassifierHead(("a", "b", "c"), "multi_label_classification"),
        [[bool(number & bit) for bit in (1, 2, 4)] for number in (0, 1, 2, 3, 4, 5, 6, 7)],
    ),
}
WHOLE = MicroBatchRule("padded", tokens=10**6)


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[ClassifierHead], Any]:
    recipe = ModelRecipe(path=str(tiny_model("bert")), kind="classifier", dropout=0.0)

    def build(head: ClassifierHead) -> Any:
        torch.manual_seed(0)  # of the fresh head
        return load_model(recipe, head).train()

    return build


@pytest.fixture
def batch_of(make_split: Any) -> Callable[[list[Any], MicroBatchRule], GlobalBatch]:
    random = np.random.default_rng(1)
    sources = [random.integers(3, 100, length).tolist() for length in (3, 17, 2, 25, 9, 4, 30, 6)]

    def build(labels: list[Any], rule: MicroBatchRule) -> GlobalBatch:
        split = make_split(sources, labels=labels)
        loader = Loader(split, Padding(0), rule, batch_examples=8, batch_tokens=None, seed=0)
        return next(iter(loader.iterate()))

    return build


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("rule", [WHOLE, MicroBatchRule("padded", tokens=60), MicroBatchRule("packed", tokens=60)])
def test_a_heads_update_is_transformers_own(
    kind: str,
    rule: MicroBatchRule,
    load: Callable[[ClassifierHead], Any],
    batch_of: Callable[[list[Any], MicroBatchRule], GlobalBatch],
) -> None:
    head, labels = HEADS[kind]
    model = load(head)
    (whole,) = batch_of(labels, WHOLE).micro_batches
    output = model(input_ids=whole.source_ids, attention_mask=whole.source_mask, labels=whole.labels)
    output.loss.backward()
    assert_agree(run_step(load(head), batch_of(labels, rule)), (float(output.loss.detach()), gradients_of(model)))
