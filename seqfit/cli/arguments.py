"""The arguments that several commands share, so that they are spelt and explained the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="Name of a library recipe ('seqfit ls'), a YAML file, or a run directory.",
    ),
]

OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OVERRIDES",
        help="Changes to the recipe: train.learning_rate=3e-4 sets a field, '~eval.early_stopping' removes one "
        "(quote it: some shells expand ~).",
    ),
]
