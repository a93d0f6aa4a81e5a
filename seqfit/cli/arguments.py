"""The arguments that several commands share, so that they are spelt and explained the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from seqfit.errors import RecipeError, complain
from seqfit.units import parse_bytes

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


def parse_limit(text: str | None) -> int | None:
    """What --memory-limit says, in bytes."""
    try:
        return None if text is None else parse_bytes(text)
    except ValueError as error:
        raise RecipeError(
            complain(f"--memory-limit is '{text}'", "it is a size in bytes", "Write it as 4GiB or 4096MiB")
        ) from error
