"""What seqfit has to know of a model type beyond its config: the contract, its defaults and the registry.

In: a model's type. Out: its `Family`. A family has no state: its methods take the config or the model.

    find_family("umt5")    T5, of t5.py: packed, split over pipeline stages, its head and its FLOPs known
    find_family("led")     Padded, of padded.py: trained as transformers runs it
    find_family("my-own")  Generic: the same, but compared with nothing; runs only with model.untested

A new family is a subclass of `Family` in a file of this folder, and a tiny model in tests/tiny_families.py, over
which tests/agreement/test_families.py holds it to this contract. The defaults are those of a model that runs padded.

Shapes: B examples, N packed source tokens, M packed target tokens, S source, T target, D model, V vocabulary.
"""

from __future__ import annotations

import copy
import importlib
import math
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.activations import NewGELUActivation
from transformers.modeling_layers import GradientCheckpointingLayer

from seqfit.data import Padding, TextEncoder
from seqfit.kernels import Layout, SeededDropout
from seqfit.model.flops import ModelShape


@dataclass(frozen=True)
class Head:
    """The last layer of a text-to-text model: logits = scale * states @ weight.T + bias.

    With it the loss is computed in chunks from the decoder's states, and logits of all target tokens never exist.
    Weight and bias are read at use: sharding and tying replace the one, moving a model to a device the other.
    """

    linear: nn.Linear
    scale: float = 1.0
    bias_owner: nn.Module | None = None  # has the buffer final_logits_bias [1, V], or not

    @property
    def weight_VD(self) -> torch.Tensor:
        return self.linear.weight

    @property
    def bias_V(self) -> torch.Tensor | None:
        bias_1V: torch.Tensor | None = getattr(self.bias_owner, "final_logits_bias", None)
        return None if bias_1V is None else bias_1V[0]

    def scaled(self, states: torch.Tensor) -> torch.Tensor:
        return states if self.scale == 1.0 else states * self.scale

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.scaled(states), self.weight_VD, self.bias_V)


@dataclass
class CurrentLayout:
    """The layout of the packed row that a model is running; None: it runs padded, and hooks must change nothing."""

    layout: Layout | None = None


def _set_layers(config: PreTrainedConfig, fields: Sequence[str], layers: int) -> None:
    for field in fields:
        if getattr(config, field, None) is not None:
            setattr(config, field, layers)
            if getattr(config, "layer_types", None):
                config.layer_types = config.layer_types[:layers]


def _find_period(types: Sequence[str]) -> int:
    periods = range(1, len(types) + 1)
    return next(n for n in periods if all(one == other for one, other in zip(types, types[n:], strict=False)))


class Family:
    """The contract. A subclass lists its `model_types` and overrides what differs."""

    name: str
    model_types: tuple[str, ...] = ()
    is_encoder_decoder = True
    is_packed = False  # attention and positions work segment by segment, and the blocks can be split over stages
    block_list = "layers"  # attribute of a stack that holds its blocks
    feed_forward_names: tuple[str, ...] = ("feed",)  # in lower case, parts of the paths of feed-forward modules
    was_eager_before_5 = False  # transformers 4 had no other attention for it
    scaled_tied_head_before_5 = False  # transformers 4 scales the decoder's output where the config ties the head
    creates_own_cache = False  # `generate` has to create its cache itself: its layers are of several kinds
    dropout_fields: tuple[str, ...] = (  # those that a config lacks are skipped
        *("dropout_rate", "dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"),
        *("attention_dropout", "activation_dropout"),
    )
    layer_drop_fields: tuple[str, ...] = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
    vocabulary_fields: tuple[str, ...] = ("vocab_size",)  # of the config: the number of tokens
    token_buffers: tuple[str, ...] = ("final_logits_bias",)  # [1, V], of any module

    # ---- what the decoder reads first ----

    def start_id(self, model: Any) -> int | None:
        """What the decoder reads first in training; None where that is the last label, or where nothing says it."""
        start: int | None = getattr(model.config, "decoder_start_token_id", None)
        return start

    def starts_with_last_label(self, _model: Any) -> bool:
        """Whether the decoder reads the target's last token first: a language code, or the end token."""
        return False

    def build_padding(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Padding:
        """The pad id and, of an encoder-decoder, how decoder inputs are made of labels."""
        pad_id = tokenizer.pad_token_id
        if pad_id is None:
            pad_id = model.config.pad_token_id or 0
        if not model.config.is_encoder_decoder:
            return Padding(int(pad_id))
        start_id = self.start_id(model)
        if start_id is None:
            start_id = model.generation_config.decoder_start_token_id  # ByT5's config may lack it
        start_id = pad_id if start_id is None else start_id
        return Padding(int(pad_id), int(start_id), self.starts_with_last_label(model))

    def text_encoder(self, _tokenizer: PreTrainedTokenizerBase) -> TextEncoder | None:
        """An encoder of its own for one of its tokenizers; None where the default serves."""
        return None

    # ---- what the config alone says ----

    def explain_untested(self, config: PreTrainedConfig) -> str | None:
        if config.model_type in list_tested_types():
            return None
        return (
            f"{config.model_type} is a type that seqfit is not tested with (model.untested): it runs padded, and its "
            "labels, decoder inputs and loss are those of the type's own code, not compared with anything"
        )

    def config_parts(self, config: PreTrainedConfig) -> list[PreTrainedConfig]:
        """Configs inside the config: those of encoder and decoder, where they have their own."""
        parts = [getattr(config, name, None) for name in config.sub_configs]
        return [part for part in parts if isinstance(part, PreTrainedConfig)]

    def max_positions(self, config: PreTrainedConfig) -> int | None:
        """The longest input and output that the model has positions for; None where they are relative."""
        positions = getattr(config, "max_position_embeddings", None)
        return None if positions is None or positions <= 0 else int(positions)

    def shape(self, _config: Mapping[str, Any]) -> ModelShape | None:
        """From a config as a dictionary; None where the FLOPs are not counted."""
        return None

    def count_layers(self, config: PreTrainedConfig) -> tuple[int, int]:
        """Of the encoder and of the decoder, which not every model has."""
        if isinstance(getattr(config, "decoder", None), PreTrainedConfig):
            encoder, decoder = (part.get_text_config() for part in (config.encoder, config.decoder))
            return int(encoder.num_hidden_layers), int(decoder.num_hidden_layers)
        decoder = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", None)
        return int(config.num_hidden_layers), int(decoder or 0)

    def with_layers(self, config: PreTrainedConfig, encoder: int, decoder: int) -> PreTrainedConfig:
        """A copy with so many; lists with an entry for each layer keep their first ones."""
        changed = copy.deepcopy(config)
        if isinstance(getattr(changed, "decoder", None), PreTrainedConfig):
            for part, layers in ((changed.encoder, encoder), (changed.decoder, decoder)):
                _set_layers(part.get_text_config(), ("num_hidden_layers",), layers)
        else:
            _set_layers(changed, ("num_hidden_layers", "num_layers", "encoder_layers"), encoder)
            _set_layers(changed, ("num_decoder_layers", "decoder_layers"), decoder)
        return changed

    def layer_period(self, config: PreTrainedConfig) -> int:
        """After how many layers they repeat: 6 where every sixth has global attention."""
        parts = [part.get_text_config() for part in self.config_parts(config)] or [config]
        lists = [getattr(part, "layer_types", None) or [""] for part in parts]
        return math.lcm(*(_find_period(types) for types in lists))

    # ---- parts of the model ----

    def blocks(self, model: nn.Module) -> dict[str, nn.Module]:
        """Name -> block, in the order of the model: what transformers repeats and marks with one class."""
        return {name: part for name, part in model.named_modules() if isinstance(part, GradientCheckpointingLayer)}

    def stack_blocks(self, stack: Any) -> nn.ModuleList:
        blocks: nn.ModuleList = getattr(stack, self.block_list)
        return blocks

    def head(self, _model: PreTrainedModel) -> Head | None:
        """None where the last layer is not known: the model's own forward computes its logits."""
        return None

    def has_shared_embedding(self, model: PreTrainedModel) -> bool:
        sides = [stack.get_input_embeddings().weight for stack in (model.get_encoder(), model.get_decoder())]
        return sides[0] is sides[1]

    def token_matrices(self, model: PreTrainedModel) -> Iterator[nn.Parameter]:
        """What has a row for each token: embeddings, heads and their biases; one that is shared comes several times."""
        parts = [model, model.get_encoder(), model.get_decoder()] if model.config.is_encoder_decoder else [model]
        for part in parts:
            for layer in (part.get_input_embeddings(), part.get_output_embeddings()):
                if layer is not None:
                    yield from layer.parameters(recurse=False)

    def ids_before_pad(self, model: PreTrainedModel) -> set[int]:
        """Ids that must keep their place where positions are counted from the pad id on, so that pad keeps its own.

        pad 1: a text's positions are 2 3 4 ...      renumbered to 0, pad would make them 1 2 3 ..., other rows
        """
        tables = ("position_embeddings", "embed_positions")
        pads = [getattr(part, "padding_idx", None) for name, part in model.named_modules() if name.endswith(tables)]
        return {number for pad in pads if pad is not None for number in range(pad)}

    # ---- packed rows ----

    def why_not_packed(self, model: PreTrainedModel) -> str | None:
        is_encoder_decoder = model.config.is_encoder_decoder
        if not self.is_packed or is_encoder_decoder != self.is_encoder_decoder:
            known = ", ".join(list_packed_types(is_encoder_decoder=is_encoder_decoder))
            return f"{model.config.model_type} has no packed path; those that have: {known}"
        if is_encoder_decoder and self.head(model) is None:
            return "an encoder-decoder that classifies has no packed path"
        if is_encoder_decoder and not self.has_shared_embedding(model):
            return "its encoder and its decoder have embeddings of their own"
        positions = getattr(model.config, "position_embedding_type", None) or "absolute"
        return None if positions == "absolute" else f"its positions are {positions}, which need the padded form"

    def install_packing(self, model: PreTrainedModel, current: CurrentLayout) -> None:
        """Plug in what packed rows need besides attention; it must do nothing while there is no current layout."""
        raise NotImplementedError(self.name)

    def first_position(self, _config: PreTrainedConfig) -> int:
        """The position of a source's first token, for a model that is given its positions."""
        return 0

    def embed(
        self, model: PreTrainedModel, source_ids: torch.Tensor, decoder_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[B, S, D] and [B, T, D] as the stacks take them. One lookup: each has a gradient of the vocabulary's size."""
        states = model.get_input_embeddings()(torch.cat([source_ids, decoder_ids], 1))
        source_BSD, target_BTD = states.split([source_ids.shape[1], decoder_ids.shape[1]], 1)
        return source_BSD, target_BTD

    def replacements(self, module: nn.Module, *, on_cpu: bool) -> dict[str, nn.Module]:
        """Faster or leaner versions of a module's children, by their names. A GPU's own dropout already keeps bytes."""
        parts: dict[str, nn.Module] = {}
        for name, part in module.named_children():
            if isinstance(part, NewGELUActivation):
                parts[name] = nn.GELU(approximate="tanh")
            elif type(part) is nn.Dropout and on_cpu:
                parts[name] = SeededDropout(part.p)
        return parts

    # ---- precision and optimizer ----

    def fp32_in_fp16(self, _model: nn.Module) -> list[nn.Module]:
        """Linear layers whose output overflows in fp16."""
        return []

    def has_weight_decay(self, _name: str, parameter: nn.Parameter) -> bool:
        """Not what has one dimension: norms and biases."""
        return parameter.ndim > 1

    # ---- pipeline stages ----

    def why_not_split(self, model: PreTrainedModel) -> str | None:
        if not self.is_packed or not self.is_encoder_decoder or self.head(model) is None:
            known = ", ".join(list_packed_types(is_encoder_decoder=True))
            return f"only text-to-text models of these types are split into stages: {known}"
        if not self.has_shared_embedding(model):
            return "the first stage needs one embedding for source and target, and this model has two"
        return None

    def keep_blocks(self, stack: Any, kept: range) -> None:
        """Delete a stack's other blocks in place, and what it does at an end that is elsewhere."""
        blocks = self.stack_blocks(stack)
        begins, ends = kept.start == 0, kept.stop == len(blocks)
        delete_blocks(blocks, set(range(len(blocks))) - set(kept))
        if not (begins and ends):
            self.open_edges(stack, begins=begins, ends=ends)

    def open_edges(self, stack: Any, *, begins: bool, ends: bool) -> None:
        """Leave out what belongs before the first block or behind the last one."""
        raise NotImplementedError(self.name)

    def is_cross_key_value(self, _name: str) -> bool:
        """Whether a linear layer of a decoder's block computes keys or values of the source."""
        return False


class Generic(Family):
    """Types outside the tested list: padded, as transformers runs them, started as the model itself starts.

    They are often another type's code under a new name, so what a family finds in a model by the names of its parts
    holds here, too: fp16 overflows in every copy of T5's gated layers.
    """

    name = "generic"
    vocabulary_fields = ("vocab_size", "decoder_vocab_size")
    _LABELS = (5, 6, 7)

    def __init__(self, families: tuple[Family, ...]) -> None:
        self._families = families

    def start_id(self, model: Any) -> int | None:
        first = self._probe_start(model)
        return None if first == self._LABELS[-1] else first

    def starts_with_last_label(self, model: Any) -> bool:
        return self._probe_start(model) == self._LABELS[-1]

    def _probe_start(self, model: Any) -> int | None:
        """The first decoder input that the model itself makes of labels."""
        shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        if shift is None:
            return super().start_id(model)
        return int(shift(labels=torch.tensor([self._LABELS]))[0, 0])

    def max_positions(self, config: PreTrainedConfig) -> int | None:
        if "roberta" in config.model_type:
            return find_family("roberta").max_positions(config)
        return super().max_positions(config)

    def fp32_in_fp16(self, model: nn.Module) -> list[nn.Module]:
        return list(dict.fromkeys(layer for family in self._families for layer in family.fp32_in_fp16(model)))

    def has_weight_decay(self, name: str, parameter: nn.Parameter) -> bool:
        return all(family.has_weight_decay(name, parameter) for family in self._families)


def linear_head(model: PreTrainedModel, scale: float = 1.0) -> Head | None:
    """`lm_head`, with the bias of BART's kind where the model has one; None for a classifier."""
    linear: Any = getattr(model, "lm_head", None)
    return Head(linear, scale, model) if isinstance(linear, nn.Linear) else None


def delete_blocks(blocks: nn.ModuleList, numbers: set[int]) -> None:
    """`del blocks[number]` would renumber, and so rename, the others."""
    for number in numbers:
        delattr(blocks, str(number))


def remove_parts(stack: nn.Module, *names: str) -> None:
    for name in names:
        if hasattr(stack, name):
            setattr(stack, name, nn.Identity())


# ---- the registry ----


@cache
def list_families() -> tuple[Family, ...]:
    modules = [
        importlib.import_module(f"{__package__}.{found.name}")
        for found in pkgutil.iter_modules([Path(__file__).parent])
    ]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return tuple(kind() for kind in dict.fromkeys(kinds) if issubclass(kind, Family) and kind.model_types)


@cache
def _by_type() -> dict[str, Family]:
    return {model_type: family for family in list_families() for model_type in family.model_types}


@cache
def _generic() -> Generic:
    return Generic(list_families())


def find_family(model_type: str | None) -> Family:
    """That of a type, or the one of all types that no file lists."""
    return _by_type().get(model_type or "") or _generic()


def family_of(model: nn.Module | PreTrainedConfig | GenerationConfig) -> Family:
    """That of a model of transformers, of the first one inside a module, or of a config."""
    if not isinstance(model, nn.Module):
        return find_family(getattr(model, "model_type", None))
    found = next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
    return _generic() if found is None else find_family(found.config.model_type)


def read_model_shape(config: Mapping[str, Any]) -> tuple[ModelShape | None, str]:
    """From a config as a dictionary; None and the reason where this kind of model is not known."""
    shape = find_family(config.get("model_type")).shape(config)
    return shape, "" if shape else f"FLOPs of a model of type '{config.get('model_type')}' are not counted"


def build_text_encoder(tokenizer: PreTrainedTokenizerBase) -> TextEncoder:
    """By the tokenizer alone: data is looked at and tokenized also where there is no model."""
    encoders = (family.text_encoder(tokenizer) for family in list_families())
    return next((encoder for encoder in encoders if encoder is not None), None) or TextEncoder(tokenizer)


def list_tested_types() -> list[str]:
    """The encoder-decoder types that tests compare with transformers."""
    return sorted(kind for kind, family in _by_type().items() if family.is_encoder_decoder)


def list_packed_types(*, is_encoder_decoder: bool) -> list[str]:
    wanted = (True, is_encoder_decoder)
    return [kind for kind, family in _by_type().items() if (family.is_packed, family.is_encoder_decoder) == wanted]


@cache
def _block_path() -> re.Pattern[str]:
    lists = "|".join(dict.fromkeys(family.block_list for family in list_families()))
    return re.compile(rf"(encoder|decoder)\.(?:text_model\.)?(?:{lists})\.\d+")


def find_place(path: str) -> tuple[str | None, bool]:
    """Of a module of any family: the side of its block, None outside of blocks; whether it is in a feed-forward layer.

    model.decoder.layers.3.fc1 -> ("decoder", True)
    """
    found = _block_path().search(path)
    names = (name for family in list_families() for name in family.feed_forward_names)
    return None if found is None else found.group(1), any(name in path.lower() for name in names)
