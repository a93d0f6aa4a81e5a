"""A model with fewer tokens: rows of its embedding matrices are dropped, after loading or while it is loaded.

In: a model, its tokenizer, how often the data uses each token. Out: the trimmed tokenizer, the kept tokens and a report
of what it saves. Every id that a config names is renumbered. Shapes: V vocabulary, D model.

    kept.old_ids [0 1 4]      embedding_VD [5, D] -> [3, D], rows 0, 1 and 4      config.vocab_size 5 -> 3
                              eos_token_id 4 -> 2

transformers' `resize_token_embeddings` keeps only the first rows and ties the untied heads of T5 v1.1, mT5 and UMT5. So
the matrices are sliced here: each one once, however many modules share it, and ties stay as they were. Rows beyond the
tokenizer's tokens (mT5 has 12 of them) are dropped as well.

`load_trimmed_model` never has the dropped rows in memory; its result is bit-exact with `load_model` and `trim_model`.
Which tokens are kept follows from the tokenizer, the data and the config, so it is decided before a weight is read.
Then each matrix [V, D] is read from a safetensors file piece by piece, and the kept rows are copied:

    old_ids [0 1 4], pieces of 2 rows      file rows 0-1 -> rows 0, 1      2-3 -> skipped      4 -> row 4      [3, D]

If that is not possible (weights that aren't safetensors, a vocabulary that belongs to a part of the model, ...), the
whole model is loaded and then trimmed, and the reason is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoModel, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, find_adapter_config_file
from transformers.utils.hub import get_checkpoint_shard_files

from seqfit.errors import ModelError
from seqfit.model import GenerationMetadata, ModelConfig, check_vocabulary, family_of, load_model
from seqfit.recipe import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead
from seqfit.trimming.choose import KeptTokens, Mode, choose_kept_tokens
from seqfit.trimming.tokenizer import trim_tokenizer
from seqfit.units import format_bytes, format_count, format_share

_BYTES_PER_FLOAT = 4
_BYTES_PER_TRAINED = 16  # weight, gradient and AdamW's two moments, all in fp32
_ONE_ID = (  # or a list of them
    *("pad_token_id", "eos_token_id", "bos_token_id", "sep_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id"),
)
_FORBIDDEN = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids")  # a dropped token needs no ban


@dataclass(frozen=True)
class TrimReport:
    tokens_before: int  # rows of the embedding matrix
    tokens_after: int
    reasons: dict[str, int]
    writing_systems: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    dropped_examples: tuple[str, ...]
    generates: bool  # a classifier has no logits over tokens

    @property
    def weight_bytes(self) -> tuple[int, int]:
        return _BYTES_PER_FLOAT * self.parameters_before, _BYTES_PER_FLOAT * self.parameters_after

    @property
    def training_bytes(self) -> tuple[int, int]:
        """Weights, gradients and AdamW's moments in fp32, before and after, if all weights are trained."""
        return _BYTES_PER_TRAINED * self.parameters_before, _BYTES_PER_TRAINED * self.parameters_after

    @property
    def logit_bytes(self) -> tuple[int, int] | None:
        """One target token's logits in fp32, before and after."""
        if not self.generates:
            return None
        return _BYTES_PER_FLOAT * self.tokens_before, _BYTES_PER_FLOAT * self.tokens_after

    def __str__(self) -> str:
        why = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.items() if count)
        systems = ", ".join(system.capitalize() for system in self.writing_systems) or "none"
        saved = [format_bytes(before - after) for before, after in (self.weight_bytes, self.training_bytes)]
        logits = ""
        if self.logit_bytes is not None:
            before, after = map(format_bytes, self.logit_bytes)
            logits = f"; the logits of a target token take {after} instead of {before}"
        return (
            f"{self.tokens_after:,} of {self.tokens_before:,} tokens kept "
            f"({format_share(self.tokens_after / self.tokens_before)}: {why}; writing systems: {systems}). "
            f"{format_count(self.parameters_after)} of {format_count(self.parameters_before)} parameters stay, which "
            f"saves {saved[0]} of weights, {saved[1]} with gradients and AdamW's moments{logits}"
        )


@dataclass(frozen=True)
class Trimmed:
    """The result of trimming, in addition to the model, which is changed in place."""

    tokenizer: PreTrainedTokenizerBase
    kept: KeptTokens
    report: TrimReport


def trim_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, counts: NDArray[np.integer], mode: Mode
) -> Trimmed:
    """Trim the model in place; `counts` says how often the data uses each of the tokenizer's tokens.

    The tokens of a checkpoint's own task are kept like the data's: `question:` of a template is in no data file.
    """
    metadata = GenerationMetadata.find(model)
    texts = [] if metadata is None else metadata.own_texts()
    ids = [number for text in texts for number in tokenizer(text, add_special_tokens=False).input_ids]
    in_task = np.bincount(np.array(ids, dtype=np.int64), minlength=len(counts))
    kept = choose_kept_tokens(tokenizer, counts + in_task, mode, needed=read_token_ids(model))
    trimmed = trim_tokenizer(tokenizer, kept)  # first, because an error must leave the model unchanged
    return Trimmed(trimmed, kept, trim_model(model, kept))


def trim_model(model: PreTrainedModel, kept: KeptTokens) -> TrimReport:
    """Drop the other tokens' rows from every matrix, in place. Before an optimizer or an adapter is built on them."""
    tokens_before = model.get_input_embeddings().num_embeddings
    assert family_of(model).ids_before_pad(model) <= set(kept.old_ids.tolist())
    _slice_rows(model, kept, tokens_before)
    for config in _find_configs(model):
        trim_config(config, kept, tokens_before)
    return report_trimming(model, kept, tokens_before)


def trim_config(config: Any, kept: KeptTokens, tokens_before: int) -> None:
    """New ids and the new number of tokens, in place, in the config of a model or of generation."""
    for name in (*_ONE_ID, *_FORBIDDEN):
        value = getattr(config, name, None)
        if value is not None:
            setattr(config, name, _new_ids(value, kept))
    for name in family_of(config).vocabulary_fields:
        if getattr(config, name, None) == tokens_before:
            setattr(config, name, len(kept))


def report_trimming(model: PreTrainedModel, kept: KeptTokens, tokens_before: int) -> TrimReport:
    """The report on a model that has only the kept tokens: the rows of its matrices say what was dropped."""
    assert model.get_input_embeddings().weight.shape[0] == len(kept)
    matrices = {parameter for parameter in family_of(model).token_matrices(model) if parameter.shape[0] == len(kept)}
    parameters_per_token = sum(matrix.numel() for matrix in matrices) // len(kept)
    parameters_after = model.num_parameters()
    return TrimReport(
        tokens_before=tokens_before,
        tokens_after=len(kept),
        reasons=kept.reasons,
        writing_systems=kept.writing_systems,
        parameters_before=parameters_after + parameters_per_token * (tokens_before - len(kept)),
        parameters_after=parameters_after,
        dropped_examples=kept.dropped_examples,
        generates=model.get_output_embeddings() is not None,
    )


def read_token_ids(model: PreTrainedModel) -> set[int]:
    """The ids that must stay: those that the model's configs name, and those before pad if pad must keep its id."""
    return list_token_ids(_find_configs(model)) | family_of(model).ids_before_pad(model)


def list_token_ids(configs: Iterable[Any]) -> set[int]:
    values = [getattr(config, name, None) for config in configs for name in _ONE_ID]
    flat = [number for value in values for number in (value if isinstance(value, list) else [value])]
    return {number for number in flat if number is not None}


def _slice_rows(model: PreTrainedModel, kept: KeptTokens, tokens_before: int) -> None:
    family, old_ids = family_of(model), torch.from_numpy(kept.old_ids)
    sliced: dict[nn.Parameter, nn.Parameter] = {}
    for parameter in family.token_matrices(model):
        if parameter.shape[0] == tokens_before and parameter not in sliced:
            rows = parameter.detach()[old_ids.to(parameter.device)]
            sliced[parameter] = nn.Parameter(rows, requires_grad=parameter.requires_grad)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if parameter in sliced:
                setattr(module, name, sliced[parameter])
                _set_sizes(module, kept)
        if not isinstance(module, nn.Embedding) and isinstance(getattr(module, "padding_idx", None), int):
            module.padding_idx = int(kept.remap[module.padding_idx])  # BART's stacks have a copy of the config's
        for name in family.token_buffers:
            values_1V = getattr(module, name, None)
            if isinstance(values_1V, torch.Tensor) and values_1V.shape[-1] == tokens_before:
                setattr(module, name, values_1V[:, old_ids.to(values_1V.device)])


def _set_sizes(module: nn.Module, kept: KeptTokens) -> None:
    if isinstance(module, nn.Embedding):
        module.num_embeddings = len(kept)
        if module.padding_idx is not None:
            module.padding_idx = int(kept.remap[module.padding_idx])
    elif isinstance(module, nn.Linear):
        module.out_features = len(kept)


def _find_configs(model: PreTrainedModel) -> list[Any]:
    """The configs of the model, of its parts, which may be copies, and of generation."""
    named = [getattr(module, "config", None) for module in model.modules()]
    found = [config for config in named if isinstance(config, PreTrainedConfig)]
    inner = [
        part
        for config in found
        for name in config.sub_configs
        if isinstance(part := getattr(config, name, None), PreTrainedConfig)
    ]
    own = getattr(model, "generation_config", None)
    return list({id(config): config for config in [*found, *inner, own] if config is not None}.values())


def _new_ids(value: Any, kept: KeptTokens) -> Any:
    """An id, or a list of ids (or of lists of them), without those of dropped tokens.

    An id that is not a token's, such as -1 for "none", is unchanged.
    """
    if not isinstance(value, list):
        return int(kept.remap[value]) if 0 <= value < len(kept.remap) else value
    if value and isinstance(value[0], list):
        return [_new_ids(phrase, kept) for phrase in value if all(number in kept.old_ids for number in phrase)]
    return [_new_ids(number, kept) for number in value if number in kept.old_ids]


PIECE_BYTES = 2**24


@dataclass(frozen=True)
class TrimmedModel:
    model: PreTrainedModel
    report: TrimReport
    fallback: str | None  # why the whole model was in memory, or None


def choose_vocabulary(
    model: ModelRecipe, tokenizer: PreTrainedTokenizerBase, counts: NDArray[np.integer], mode: Mode
) -> tuple[KeptTokens, PreTrainedTokenizerBase]:
    """The kept tokens and the tokenizer that has only them, without reading the model's weights."""
    config = ModelConfig.load(model).config
    vocab_size = getattr(config, "vocab_size", None)
    if vocab_size is not None:
        check_vocabulary(vocab_size, tokenizer, model)
    needed = list_token_ids([config, *_load_generation_config(model)])
    if getattr(config, "pad_token_id", None):
        needed |= family_of(config).ids_before_pad(_build_shapes(AutoModel, config))
    kept = choose_kept_tokens(tokenizer, counts, mode, needed)
    return kept, trim_tokenizer(tokenizer, kept)


def load_trimmed_model(model: ModelRecipe, head: ClassifierHead | None, kept: KeptTokens) -> TrimmedModel:
    picked = _pick_rows(model, ModelConfig.load(model, head), kept)
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
        low, high = int(old_ids[start]), int(old_ids[end - 1])
        # Opened each time, because pages read from a mapped file stay in memory until it is closed.
        with safe_open(file, framework="pt") as opened:
            rows = opened.get_slice(name)[low : high + 1]
        torch.index_select(rows, 0, torch.from_numpy(old_ids[start:end] - low), out=kept_rows[start:end])
    return kept_rows


def _pick_rows(model: ModelRecipe, source: ModelConfig, kept: KeptTokens) -> TrimmedModel | str:
    if source.config.sub_configs or getattr(source.config, "vocab_size", None) is None:
        return "its vocabulary belongs to a part of it"
    if model.weights == "random":
        tokens_before = source.config.vocab_size
        trim_config(source.config, kept, tokens_before)
        built = source.build(model)
        return TrimmedModel(built, report_trimming(built, kept, tokens_before), None)
    if any(getattr(source.config, name, None) is not None for name in ("quantization_config", "transformers_weights")):
        return "its config says that its weights are stored in a special format"
    try:
        if find_adapter_config_file(model.location) is not None:
            return "its folder has adapters"
        files = _list_safetensors(model.location)
        return _load_kept(model, source, kept, files) if files else "its weights are not safetensors"
    except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
        return f"{type(error).__name__}: {error}"  # loading the whole model reports what is really wrong


def _load_kept(model: ModelRecipe, source: ModelConfig, kept: KeptTokens, files: list[str]) -> TrimmedModel:
    tokens_before = source.config.vocab_size
    shapes = _build_shapes(source.auto, source.config)
    family = family_of(shapes)
    matrices = set(family.token_matrices(shapes))
    names = {name for name, parameter in shapes.named_parameters(remove_duplicate=False) if parameter in matrices}
    names |= {name for name, _ in shapes.named_buffers() if name.endswith(family.token_buffers)}
    weights = _read_weights(files, names, kept, tokens_before)
    trim_config(source.config, kept, tokens_before)
    # The Auto class would look for code in the folder; the model's own class doesn't.
    built = replace(source, auto=type(shapes)).build(model, weights)
    for generation in _load_generation_config(model):
        trim_config(generation, kept, tokens_before)
        built.generation_config = generation
    return TrimmedModel(built, report_trimming(built, kept, tokens_before), None)


def _build_shapes(auto: Any, config: PreTrainedConfig) -> PreTrainedModel:
    with quiet_transformers(), torch.device("meta"):
        shapes: PreTrainedModel = auto.from_config(config)
    return shapes


def _read_weights(
    files: list[str], vocabulary_names: set[str], kept: KeptTokens, tokens_before: int
) -> dict[str, torch.Tensor]:
    weights = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a dict
                shape = opened.get_slice(name).get_shape()
                if tokens_before not in shape or not _is_one_of(name, vocabulary_names):
                    weights[name] = opened.get_tensor(name)
                elif shape[0] != tokens_before:  # a buffer [1, V]
                    weights[name] = opened.get_tensor(name)[:, kept.old_ids]
                else:
                    weights[name] = read_kept_rows(file, name, kept.old_ids)
    return weights


def _is_one_of(name: str, model_names: set[str]) -> bool:
    """A file may lack the prefix of the model's parameter names, or have one that the model lacks."""
    return any(name == known or name.endswith(f".{known}") or known.endswith(f".{name}") for known in model_names)


def _list_safetensors(location: str) -> list[str]:
    """Files of a folder, or downloaded from the Hub once; in transformers' order of preference."""
    optional: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}
    with quiet_transformers():
        whole = cached_file(location, SAFE_WEIGHTS_NAME, **optional)
        if whole is not None:
            return [whole]
        index = cached_file(location, SAFE_WEIGHTS_INDEX_NAME, **optional)
        return [] if index is None else list(get_checkpoint_shard_files(location, index)[0])


def _load_generation_config(model: ModelRecipe) -> list[GenerationConfig]:
    """At most one: from its own file or, like transformers, from the model's config if there is none."""
    if model.kind == "classifier":
        return []
    with quiet_transformers():
        try:
            return [GenerationConfig.from_pretrained(model.location)]
        except OSError:
            return [GenerationConfig.from_pretrained(model.location, "config.json", _from_model_config=True)]
