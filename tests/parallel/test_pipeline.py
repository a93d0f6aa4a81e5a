"""Which models can be spread. That they then learn the same is in tests/agreement/test_pipeline.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from seqfit.errors import ModelError
from seqfit.model.load import load_model
from seqfit.parallel.pipeline import check_can_split
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[..., Any]:
    def build(name: str, kind: Any = "text-to-text") -> Any:
        return load_model(ModelRecipe(path=str(tiny_model(name)), kind=kind), ClassifierHead(("yes", "no")))

    return build


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "umt5", "bart", "marian"])
def test_a_model_has_at_most_as_many_stages_as_blocks(name: str, load: Callable[..., Any]) -> None:
    check_can_split(load(name), 4)
    with pytest.raises(ModelError, match=r"over 5 processes, and the model has 4 blocks.*Start at most 4"):
        check_can_split(load(name), 5)


def test_a_classifier_is_not_split(load: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match=r"BertForSequenceClassification.*Set strategy.parallel=fsdp"):
        check_can_split(load("bert", "classifier"), 2)


def test_a_model_with_two_embeddings_is_not_split(load: Callable[..., Any]) -> None:
    model = load("marian")
    model.base_model.decoder.embed_tokens = nn.Embedding(100, 32)
    with pytest.raises(ModelError, match="one embedding for source and target"):
        check_can_split(model, 2)
