"""`seqfit.trim`: writes a folder with the same model, reduced to the tokens of some data.

A recipe's mistakes are reported before torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import RecipeError
from seqfit.recipe import SPLITS, ModelRecipe, Recipe, load_recipe

if TYPE_CHECKING:
    from seqfit.progress import Progress
    from seqfit.trimming.choose import Mode
    from seqfit.trimming.weights import TrimReport


def trim(
    model: str | Path,
    out: str | Path,
    *,
    data: Sequence[str | Path] = (),
    recipe: Recipe | str | Path | Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    mode: Mode | None = None,
    tokenizer: str | Path | None = None,
    progress: Progress | None = None,
) -> TrimReport:
    """Write to the folder `out` a model that has only the tokens of some data files, or of a recipe's data.

    `mode`: data, language or a number of additional tokens; default: the recipe's model.trim_vocabulary, or else data.
    """
    _check_token_source(data, recipe is not None, overrides)
    loaded = None if recipe is None else load_recipe(recipe, overrides)
    # These import torch; a recipe's mistakes are reported before.
    from seqfit.data import prepare_data
    from seqfit.model import build_text_encoder, check_vocabulary, family_of, load_tokenizer
    from seqfit.trimming.folder import check_free, load_whole, save_trimmed
    from seqfit.trimming.remap import count_file_tokens, count_tokens
    from seqfit.trimming.vocabulary import check_trimmable
    from seqfit.trimming.weights import trim_vocabulary

    check_free(Path(out))
    place = {"path" if Path(model).is_dir() else "name": str(model)}
    wanted = ModelRecipe.model_validate(place | {"tokenizer": None if tokenizer is None else str(tokenizer)})
    full = load_tokenizer(wanted)
    check_trimmable(full)
    whole = load_whole(wanted)
    check_vocabulary(whole.get_input_embeddings().num_embeddings, full, wanted)
    if loaded is None:
        counts = count_file_tokens(list(map(Path, data)), full, progress)
    else:  # as the model reads them
        encoder, limit = build_text_encoder(full), family_of(whole).max_positions(whole.config)
        prepared = prepare_data(loaded, full, SPLITS, encoder=encoder, position_limit=limit, progress=progress)
        counts = count_tokens(prepared, len(full))
    if mode is None and loaded is not None:
        mode = loaded.model.trim_vocabulary
    trimmed = trim_vocabulary(whole, full, counts, "data" if mode is None else mode)
    save_trimmed(Path(out), whole, trimmed.tokenizer)
    return trimmed.report


def _check_token_source(data: Sequence[str | Path], has_recipe: bool, overrides: Sequence[str]) -> None:
    if bool(data) == has_recipe:
        raise RecipeError(
            "data files and a recipe are both given" if data else "neither data files nor a recipe is given",
            "One of them says which tokens to keep",
            "Give --data FILE or --recipe RECIPE",
        )
    if overrides and not has_recipe:
        raise RecipeError(
            f"'{overrides[0]}' is given with --data",
            "Overrides change a recipe, and none is given",
            "Write --data before each file, or remove the override",
        )
