from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.model.load import load_model
from seqfit.model.trainable import freeze_parts
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    def build(name: str) -> Any:
        kind = "classifier" if name == "bert" else "text-to-text"
        return load_model(
            ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind}), ClassifierHead(("a", "b"))
        )

    return build


def learning(model: Any) -> set[str]:
    return {name for name, tensor in model.named_parameters() if tensor.requires_grad}


def test_the_head_of_a_tied_model_is_frozen_with_its_embeddings_and_the_report_says_so(
    load: Callable[[str], Any],
) -> None:
    model = load("t5")
    report = freeze_parts(model, ["embeddings"])
    assert not model.lm_head.weight.requires_grad
    assert model.num_parameters() - model.num_parameters(only_trainable=True) == 100 * 32
    assert report.startswith("embeddings frozen: 3200 weights are frozen, ")
    assert report.endswith("the head is the same matrix as the embeddings and is frozen, too")


def test_the_head_of_an_untied_model_stays_trainable(load: Callable[[str], Any]) -> None:
    model = load("mt5")
    report = freeze_parts(model, ["embeddings"])
    assert "lm_head.weight" in learning(model)
    assert "shared.weight" not in learning(model)
    assert "head" not in report


def test_t5s_frozen_encoder_includes_its_position_table_but_not_the_shared_embeddings(
    load: Callable[[str], Any],
) -> None:
    model = load("t5")
    freeze_parts(model, ["encoder"])
    assert {name for name in learning(model) if not name.startswith("decoder.")} == {"shared.weight"}
    assert not model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.requires_grad


def test_frozen_embeddings_include_positions_and_leave_t5s_position_tables(load: Callable[[str], Any]) -> None:
    bart, t5 = load("bart"), load("t5")
    freeze_parts(bart, ["embeddings"])
    freeze_parts(t5, ["embeddings"])
    assert not any("embed" in name for name in learning(bart) if "layernorm" not in name)
    assert sum("relative_attention_bias" in name for name in learning(t5)) == 2


def test_with_both_parts_frozen_only_the_decoder_is_trainable(load: Callable[[str], Any]) -> None:
    model = load("bart")
    freeze_parts(model, ["embeddings", "encoder"])
    assert {name.split(".")[1] for name in learning(model)} == {"decoder"}


def test_the_pooler_and_the_head_of_a_classifier_stay_trainable(load: Callable[[str], Any]) -> None:
    model = load("bert")
    freeze_parts(model, ["embeddings", "encoder"])
    assert learning(model) == {
        f"{part}.{kind}" for part in ("bert.pooler.dense", "classifier") for kind in ("weight", "bias")
    }
    assert model.num_parameters(only_trainable=True) == 32 * 32 + 32 + 2 * 32 + 2
