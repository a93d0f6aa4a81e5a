from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe.overrides import OverrideKey, annotation_at, names_at, union_members
from seqfit.recipe.schema import EarlyStopping, OptimizerRecipe, SourceRecipe


@pytest.mark.parametrize(
    ("path", "members"),
    [
        (["train", "optimizer"], [OptimizerRecipe]),
        (["eval", "early_stopping"], [EarlyStopping]),
        (["data"], [SourceRecipe, list[SourceRecipe]]),
        (["data", 0], [SourceRecipe]),
        (["data", "0", "path"], [str]),
        (["data", "path"], [str]),
        (["task", "labels", "World", 1], [str]),
        (["task", "labels", "1"], [list[str]]),
        (["task", "labels", 1], [str]),
        (["strategy", "precision"], [Any]),
        (["train", "epochs"], [float]),
    ],
)
def test_a_path_leads_to_its_types(path: list[OverrideKey], members: list[Any]) -> None:
    assert union_members(annotation_at(path)) == members


@pytest.mark.parametrize("path", [["trane"], ["train", "x"], ["seed", "x"], ["data", "0", "pth"]])
def test_an_unknown_path_leads_to_nothing(path: list[OverrideKey]) -> None:
    assert annotation_at(path) is None


def test_names_are_fields_or_the_allowed_keys() -> None:
    assert names_at(["eval", "early_stopping"]) == ["patience", "min_delta"]
    assert names_at(["data", "splits"]) == ["train", "validation", "test"]
    assert names_at(["task", "labels"]) == []
