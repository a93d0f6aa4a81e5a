"""What agreement tests share: a global batch whose targets differ wildly in length, and stock transformers' update.

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
from seqfit.data.loader import GlobalBatch, Loader, Padding
from seqfit.model.load import load_model
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead

HEAD = ClassifierHead(("yes", "no", "maybe"))
EXAMPLES = 8
Gradients = dict[str, torch.Tensor]
Update = tuple[float, Gradients]


@pytest.fixture(scope="session")
def global_batch(make_split: Any) -> Callable[[str, MicroBatchRule], GlobalBatch]:
    """Targets of 1 to 30 tokens, so that a mean of means would be far off."""
    random = np.random.default_rng(1)
    sources = [random.integers(3, 100, length).tolist() for length in (3, 17, 2, 25, 9, 4, 30, 6)]
    targets = [random.integers(3, 100, length).tolist() for length in (30, 1, 2, 1, 12, 1, 3, 1)]

    def build(name: str, rule: MicroBatchRule) -> GlobalBatch:
        classifier = name == "bert"
        split = make_split(sources, labels=[0, 1, 2, 0, 0, 1, 2, 0]) if classifier else make_split(sources, targets)
        padding = Padding(0) if classifier else Padding(0, 2 if name in ("bart", "marian") else 0)
        loader = Loader(split, padding, rule, batch_examples=EXAMPLES, batch_tokens=None, seed=0)
        return next(iter(loader.iterate()))

    return build


@pytest.fixture(scope="session")
def fresh_model(tiny_model: Callable[[str], Path]) -> Callable[..., Any]:
    def load(name: str, dropout: float = 0.0) -> Any:
        kind = "classifier" if name == "bert" else "text-to-text"
        recipe = ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind, "dropout": dropout})
        torch.manual_seed(0)  # of the classifier's fresh head
        return load_model(recipe, HEAD).train()

    return load


def gradients_of(model: Any) -> Gradients:
    return {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.grad is not None}


@pytest.fixture(scope="session")
def stock(
    fresh_model: Callable[[str], Any], global_batch: Callable[[str, MicroBatchRule], GlobalBatch]
) -> Callable[[str], Update]:
    """transformers' own loss and its gradients on the whole padded batch."""

    @cache
    def compute(name: str) -> Update:
        model = fresh_model(name)
        (whole,) = global_batch(name, MicroBatchRule("padded", 10**6)).micro_batches
        loss = model(input_ids=whole.source_ids, attention_mask=whole.source_mask, labels=whole.labels).loss
        loss.backward()
        return float(loss.detach()), gradients_of(model)

    return compute
