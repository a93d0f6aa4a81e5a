"""`seqfit cp NAME FILE`: a library recipe to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqfit.recipe.library import copy_recipe


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a library recipe ('seqfit ls').")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to put the copy: a new file, or a folder.")],
) -> None:
    """Copy a library recipe, with its comments, to a file of your own. Never overwrites."""
    print(f"wrote {copy_recipe(name, file)}")
