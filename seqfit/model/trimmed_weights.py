"""Loads a model with the kept words only: the rows of the other words are never in memory.

In: a model's folder (or Hub name), its tokenizer and how often the data uses each word. Out: first the kept words and
the trimmed tokenizer, then the model, bit for bit what `load_model` and `trim_model` give. Shapes: V vocabulary,
D model.

The one idea: which words are kept follows from the tokenizer, the data and the config, so it is decided before a weight
is read. Then a safetensors file gives each matrix [V, D] piece by piece, of which the kept rows are copied:

    old_ids [0 1 4], pieces of 2 rows      file rows 0-1 -> rows 0, 1      2-3 -> skipped      4 -> row 4      [3, D]

All else is handed over as it lies in the file. A model of another kind (weights that aren't safetensors, a vocabulary
that belongs to a part of it, ...) is loaded whole and then trimmed, and the reason is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from transformers import AutoModel, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, find_adapter_config_file
from transformers.utils.hub import get_checkpoint_shard_files

from seqfit.errors import ModelError
from seqfit.model.build import Outline, build_model, check_embeddings, load_model, load_outline, quiet
from seqfit.model.trim import (
    TrimReport,
    find_matrices,
    list_ids_before_pad,
    list_token_ids,
    report_trimming,
    trim_config,
    trim_model,
)
from seqfit.model.trim_tokenizer import trim_tokenizer
from seqfit.model.trim_words import KeptWords, Mode, choose_kept_words
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead

PIECE_BYTES = 2**24
_LOGITS_BIAS = "final_logits_bias"  # BART's and Marian's, a buffer [1, V]


@dataclass(frozen=True)
class TrimmedModel:
    """A model with the kept words only."""

    model: PreTrainedModel
    report: TrimReport
    fallback: str | None  # why the whole model was in memory, or None


def choose_vocabulary(
    model: ModelRecipe, tokenizer: PreTrainedTokenizerBase, counts: NDArray[np.integer], mode: Mode
) -> tuple[KeptWords, PreTrainedTokenizerBase]:
    """The kept words and the tokenizer that knows them only, without a look at the model's weights."""
    config = load_outline(model).config
    words = getattr(config, "vocab_size", None)
    if words is not None:
        check_embeddings(words, tokenizer, model)
    needed = list_token_ids([config, *_load_generation_config(model)])
    if getattr(config, "pad_token_id", None):
        needed |= list_ids_before_pad(_build_shapes(AutoModel, config))
    kept = choose_kept_words(tokenizer, counts, mode, needed)
    return kept, trim_tokenizer(tokenizer, kept)


def load_trimmed_model(model: ModelRecipe, head: ClassifierHead | None, kept: KeptWords) -> TrimmedModel:
    """The model in fp32 with the kept words only."""
    picked = _pick_rows(model, load_outline(model, head), kept)
    if isinstance(picked, TrimmedModel):
        return picked
    whole = load_model(model, head)
    return TrimmedModel(whole, trim_model(whole, kept), fallback=picked)


def read_kept_rows(file: str, name: str, old_ids: NDArray[np.integer], piece_bytes: int = PIECE_BYTES) -> torch.Tensor:
    """Rows `old_ids` (ascending) of one matrix or vector of a safetensors file, in the file's own precision."""
    with safe_open(file, framework="pt") as opened:
        first_row: torch.Tensor = opened.get_slice(name)[0:1]
    rows_per_piece = max(1, piece_bytes // first_row.nbytes)
    kept_rows = first_row.new_empty((len(old_ids), *first_row.shape[1:]))
    pieces = old_ids // rows_per_piece
    for piece in np.unique(pieces).tolist():
        start, end = np.searchsorted(pieces, [piece, piece + 1])
        _copy_rows(file, name, old_ids[start:end], kept_rows[start:end])
    return kept_rows


def _copy_rows(file: str, name: str, old_ids: NDArray[np.integer], to: torch.Tensor) -> None:
    """The file is opened anew each time: what was read of a mapped file stays in memory until it is closed."""
    low, high = int(old_ids[0]), int(old_ids[-1])
    with safe_open(file, framework="pt") as opened:
        rows = opened.get_slice(name)[low : high + 1]
    torch.index_select(rows, 0, torch.from_numpy(old_ids - low), out=to)


def _pick_rows(model: ModelRecipe, outline: Outline, kept: KeptWords) -> TrimmedModel | str:
    """The model, or why rows cannot be picked while it loads."""
    if outline.config.sub_configs or getattr(outline.config, "vocab_size", None) is None:
        return "its vocabulary belongs to a part of it"
    if model.weights == "random":
        return _build_random(model, outline, kept)
    if any(getattr(outline.config, name, None) is not None for name in ("quantization_config", "transformers_weights")):
        return "its config says that its weights are kept in a way of their own"
    try:
        if find_adapter_config_file(model.location) is not None:
            return "there are adapters beside its weights"
        files = _list_safetensors(model.location)
        return _load_kept(model, outline, kept, files) if files else "its weights are not safetensors"
    except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
        return f"{type(error).__name__}: {error}"  # what is really wrong is said by loading it whole


def _build_random(model: ModelRecipe, outline: Outline, kept: KeptWords) -> TrimmedModel:
    words_before = outline.config.vocab_size
    trim_config(outline.config, kept, words_before)
    built = build_model(model, outline)
    return TrimmedModel(built, report_trimming(built, kept, words_before), None)


def _load_kept(model: ModelRecipe, outline: Outline, kept: KeptWords, files: list[str]) -> TrimmedModel:
    words_before = outline.config.vocab_size
    shapes = _build_shapes(outline.auto, outline.config)
    weights = _read_weights(files, _find_vocabulary_names(shapes), kept, words_before)
    trim_config(outline.config, kept, words_before)
    # The Auto class looks at the folder for code, and here is none; the model's own class doesn't.
    built = build_model(model, replace(outline, auto=type(shapes)), weights)
    for generation in _load_generation_config(model):
        trim_config(generation, kept, words_before)
        built.generation_config = generation
    return TrimmedModel(built, report_trimming(built, kept, words_before), None)


def _build_shapes(auto: Any, config: PreTrainedConfig) -> PreTrainedModel:
    """The model without weights, which takes no memory."""
    with quiet(), torch.device("meta"):
        shapes: PreTrainedModel = auto.from_config(config)
    return shapes


def _read_weights(
    files: list[str], vocabulary_names: set[str], kept: KeptWords, words_before: int
) -> dict[str, torch.Tensor]:
    weights = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a dict
                shape = opened.get_slice(name).get_shape()
                if words_before not in shape or not _is_one_of(name, vocabulary_names):
                    weights[name] = opened.get_tensor(name)
                elif name.endswith(_LOGITS_BIAS):
                    weights[name] = opened.get_tensor(name)[:, kept.old_ids]
                else:
                    weights[name] = read_kept_rows(file, name, kept.old_ids)
    return weights


def _find_vocabulary_names(model: PreTrainedModel) -> set[str]:
    """The model's names of all that has a row for each word."""
    matrices = set(find_matrices(model))
    found = {name for name, parameter in model.named_parameters(remove_duplicate=False) if parameter in matrices}
    return found | {name for name, _ in model.named_buffers() if name.endswith(_LOGITS_BIAS)}


def _is_one_of(name: str, model_names: set[str]) -> bool:
    """A file may lack the prefix that a model has before its encoder's names, or have one that it lacks."""
    return any(name == known or name.endswith(f".{known}") or known.endswith(f".{name}") for known in model_names)


def _list_safetensors(location: str) -> list[str]:
    """Of a folder, or fetched from the Hub unless they were before; in the order in which transformers looks."""
    optional: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}
    with quiet():
        whole = cached_file(location, SAFE_WEIGHTS_NAME, **optional)
        if whole is not None:
            return [whole]
        index = cached_file(location, SAFE_WEIGHTS_INDEX_NAME, **optional)
        return [] if index is None else list(get_checkpoint_shard_files(location, index)[0])


def _load_generation_config(model: ModelRecipe) -> list[GenerationConfig]:
    """At most one. From its own file or, as transformers does where there is none, from the model's config."""
    if model.kind == "classifier":
        return []
    with quiet():
        try:
            return [GenerationConfig.from_pretrained(model.location)]
        except OSError:
            return [GenerationConfig.from_pretrained(model.location, "config.json", _from_model_config=True)]
