from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from seqfit.errors import ModelError
from seqfit.model.load import load_model
from seqfit.model.trainable import find_blocks
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("t5", ["encoder.block.0", "encoder.block.1", "decoder.block.0", "decoder.block.1"]),
        ("bart", [f"model.{side}.layers.{number}" for side in ("encoder", "decoder") for number in (0, 1)]),
        ("bert", ["bert.encoder.layer.0", "bert.encoder.layer.1"]),
    ],
)
def test_blocks_are_found_in_any_family(tiny_model: Callable[[str], Path], name: str, blocks: list[str]) -> None:
    kind = "classifier" if name == "bert" else "text-to-text"
    model = load_model(
        ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind}), ClassifierHead(("a", "b"))
    )
    assert list(find_blocks(model, "this")) == blocks


def test_a_model_without_blocks_is_an_error_in_three_parts() -> None:
    with pytest.raises(ModelError, match=r"strategy.compile is set for a Linear\. It works .* Leave it out"):
        find_blocks(nn.Linear(2, 2), "strategy.compile")
