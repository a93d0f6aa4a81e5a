"""`seqfit prefetch`: downloads model, tokenizer and data for nodes without a network.

In: a recipe, on a login node. Out: files in the caches of the Hub's libraries and of seqfit, where a node that shares
the home directory finds them with HF_HUB_OFFLINE=1. Weights are never loaded: a login node has little memory.

    google/mt5-small                  ->  ~/.cache/huggingface/hub/models--google--mt5-small/
    data.hub: knkarthick/dialogsum    ->  ~/.cache/huggingface/datasets/knkarthick___dialogsum/
    both                              ->  ~/.cache/seqfit/tokenized/3f9a.../        (unless tokenize=False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.errors import ModelError
from seqfit.hub import is_remote_code_trusted, use_hub
from seqfit.recipe import SPLITS, ModelRecipe, Recipe
from seqfit.tasks import head_of
from seqfit.units import format_bytes, format_count
from seqfit.validation import load_checked_recipe

_SMALL = ["*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]  # config and tokenizer
_WEIGHTS = ("*.safetensors", "*.bin")  # in the order of preference


def download(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    tokenize: bool = True,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Iterator[str]:
    """Everything that training with this recipe reads; yields a line per part."""
    loaded = load_checked_recipe(recipe, overrides)
    from seqfit.data import find_tables, prepare_data
    from seqfit.model import ModelConfig, build_text_encoder, load_position_limit, load_tokenizer  # imports torch

    ModelConfig.load(loaded.model, head_of(loaded.task))  # of the recipe's kind, before its weights are downloaded
    yield _fetch_model(loaded.model)
    if loaded.model.tokenizer is not None:
        where = loaded.model.tokenizer
        yield _describe("tokenizer", where, _find_folder("tokenizer", where, _SMALL))
    tokenizer = load_tokenizer(loaded.model)
    for source in loaded.sources:
        tables = find_tables(source)  # downloads where the source is on the Hub
        yield f"data: {source.path or f'{source.hub}, from the Hub'} ({', '.join(tables)})"
    if tokenize:
        limit = load_position_limit(loaded.model)
        encoder = build_text_encoder(tokenizer)
        prepared = prepare_data(loaded, tokenizer, SPLITS, encoder=encoder, position_limit=limit, progress=progress)
        rows = ", ".join(f"{name} {format_count(len(split))}" for name, split in prepared.splits.items())
        yield f"tokenized: {rows} rows"


def _fetch_model(model: ModelRecipe) -> str:
    """Config and weights, in the first format that the model has."""
    kinds = [()] if model.weights == "random" else [(kind,) for kind in _WEIGHTS]
    for kind in kinds:
        folder = _find_folder("model", model.location, [*_SMALL, *kind])
        if not kind or any(folder.glob(kind[0])):
            return _describe("model", model.location, folder)
    raise ModelError(
        f"'{model.location}' has no weights",
        f"they are files such as {' or '.join(_WEIGHTS)}",
        "Choose another model, or set model.weights=random to start from the config alone",
    )


def _find_folder(what: str, location: str, patterns: Sequence[str]) -> Path:
    """A local folder as it is; else the files on the Hub that match, downloaded."""
    if Path(location).is_dir():
        return Path(location)
    use_hub()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    code = ["*.py"] if is_remote_code_trusted() else []
    try:
        return Path(snapshot_download(location, allow_patterns=[*patterns, *code]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
        raise ModelError(
            f"the {what} '{location}' can't be downloaded ({type(error).__name__}: {reason})",
            "prefetch needs the network, and the exact name on the Hub",
            "Run it on a login node, correct the name, or log in with 'hf auth login' if it is private",
        ) from error


def _describe(what: str, location: str, folder: Path) -> str:
    size = format_bytes(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    return f"{what}: {location}, {size}" + ("" if folder == Path(location) else f" in {folder}")
