"""Whether the places that a recipe names are there, before a job waits for hours to find that they are not.

In: recipes, with their paths made absolute. Out: nothing, or one error for the first that is missing. `seqfit submit`
runs on a login node, which shares its folders with the nodes. A name on the Hub is no place, and what a container
sees is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seqfit.data.text_files import require_file
from seqfit.errors import ModelError, complain
from seqfit.hub import is_path
from seqfit.launch.site import Site
from seqfit.recipe.schema import Recipe, SourceRecipe


def check_places(recipes: Iterable[Recipe], site: Site) -> None:
    """Model, tokenizer and data of each."""
    if site.container:
        return
    for recipe in recipes:
        model = recipe.model
        if model.path is not None or is_path(model.location):
            _check_folder(model.location, "model.path" if model.path is not None else "model.name")
        if model.tokenizer is not None and is_path(model.tokenizer):
            _check_folder(model.tokenizer, "model.tokenizer")
        for source in recipe.sources:
            _check_source(source)


def _check_folder(location: str, field: str) -> None:
    if not Path(location).expanduser().is_dir():
        raise ModelError(
            complain(
                f"{field} is '{location}', and there is no such folder",
                "a job trains with what is there when it is submitted",
                f"Set {field} to a folder in Hugging Face layout, or model.name to a name on the Hub",
            )
        )


def _check_source(source: SourceRecipe) -> None:
    if source.path is None:
        return
    path = Path(source.path).expanduser()
    is_stem = source.languages is not None and any(path.parent.glob(f"{path.name}.*"))  # train -> train.en, train.de
    if not is_stem:
        require_file(path)
