"""The public functions that put rooms together which do not know each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe

if TYPE_CHECKING:
    from seqfit.data.data_report import DataReport
    from seqfit.data.row_index import Progress


def describe_data(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    rows: int | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """The data as the recipe's model sees it; `rows` looks at so many rows of each source and split only."""
    loaded = load_recipe(recipe, overrides)
    # These import torch: a recipe's mistakes are reported before.
    from seqfit.data import describe
    from seqfit.model.build import load_position_limit, load_tokenizer

    tokenizer = load_tokenizer(loaded.model)
    limit = load_position_limit(loaded.model)
    return describe.describe_data(loaded, tokenizer, position_limit=limit, rows=rows, progress=progress)
