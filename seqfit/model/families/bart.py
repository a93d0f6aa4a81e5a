"""BART, Marian, Pegasus, mBART, mBART-50 and PLBart: absolute positions, a bias on the logits, layer norms.

head           logits = states W + final_logits_bias
packed rows    a hook gives `embed_positions` the positions within each segment
stages         positions, their norm and their dropout belong to the first block, a closing norm to the last one

Marian and Pegasus have sinusoidal positions and embeddings that the stacks scale. The encoder scales only what it looks
up itself, and not what it is given; the decoder scales both. Marian's two sides may have an embedding each, and then it
runs padded.

The decoder of mBART, mBART-50 and PLBart reads the target's last token first, a language code or the end token:

    labels            7 9 1 fr_XX
    decoder inputs    fr_XX 7 9 1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import TextEncoder
from seqfit.model.families.family import CurrentLayout, Family, Head, linear_head, remove_parts
from seqfit.model.flops import ModelShape
from seqfit.recipe import TaskRecipe

_CROSS_KEY_VALUE = re.compile(r"encoder_attn\.[kv]_proj$")


class Bart(Family):
    name = "BART"
    model_types: tuple[str, ...] = ("bart",)
    is_packed = True
    feed_forward_names = ("fc1", "fc2")

    def shape(self, config: Mapping[str, Any]) -> ModelShape:
        width = config["d_model"]
        return ModelShape(
            width=width,
            attention_width=width,
            encoder_layers=config["encoder_layers"],
            encoder_feed_forward=2 * width * config["encoder_ffn_dim"],
            decoder_layers=config["decoder_layers"],
            decoder_feed_forward=2 * width * config["decoder_ffn_dim"],
            vocabulary=config["vocab_size"],
        )

    def head(self, model: PreTrainedModel) -> Head | None:
        return linear_head(model)

    def install_packing(self, model: PreTrainedModel, current: CurrentLayout) -> None:
        for stack, side in ((model.get_encoder(), "source"), (model.get_decoder(), "target")):
            stack.embed_positions.register_forward_pre_hook(_segment_positions(side, current), with_kwargs=True)

    def open_edges(self, stack: Any, *, begins: bool, ends: bool) -> None:
        if not ends:
            remove_parts(stack, "layer_norm")
        if not begins:
            remove_parts(stack, "layernorm_embedding")
            stack.dropout = 0.0  # a rate, used before the first block only
            stack.embed_positions = _NoPositions()

    def is_cross_key_value(self, name: str) -> bool:
        return _CROSS_KEY_VALUE.search(name) is not None


def _segment_positions(side: str, current: CurrentLayout) -> Callable[..., tuple[Any, dict[str, Any]] | None]:
    def give_positions(
        module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        if current.layout is None:
            return None
        positions_1N = getattr(current.layout, side).positions(next(module.parameters()).device)
        return inputs, settings | {"position_ids": positions_1N[0]}

    return give_positions


class _NoPositions(nn.Module):
    """In the place of positions, which are added before the first block."""

    def forward(self, *_: Any, **__: Any) -> torch.Tensor:
        return torch.zeros(())


class MarianEncoder(TextEncoder):
    """A model of several target languages reads at the start of a source which one is meant: '>>fra<< '."""

    def explain_missing_prefix(self, task: TaskRecipe) -> str | None:
        codes: list[str] = getattr(self._tokenizer, "supported_language_codes", [])
        if len(codes) < 2 or task.prefix.startswith(">>"):
            return None
        return (
            f"the Marian model writes {len(codes)} languages, and the start of a source must say which; task.prefix "
            f"names none, so the rows must, or set task.prefix='{codes[0]} '"
        )


class Marian(Bart):
    """The OPUS-MT models of Helsinki-NLP."""

    name = "Marian"
    model_types = ("marian",)
    vocabulary_fields: tuple[str, ...] = ("vocab_size", "decoder_vocab_size")

    def text_encoder(self, tokenizer: PreTrainedTokenizerBase) -> TextEncoder | None:
        return MarianEncoder(tokenizer) if hasattr(tokenizer, "supported_language_codes") else None

    def embed(
        self, model: PreTrainedModel, source_ids: torch.Tensor, decoder_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        source_BSD, target_BTD = super().embed(model, source_ids, decoder_ids)
        scale = model.get_encoder().embed_scale
        return source_BSD if scale == 1.0 else source_BSD * scale, target_BTD

    def open_edges(self, stack: Any, *, begins: bool, ends: bool) -> None:
        super().open_edges(stack, begins=begins, ends=ends)
        if not begins:
            stack.embed_scale = 1.0


class Pegasus(Marian):
    """With a closing norm behind each stack, which BART's code removes where it is elsewhere."""

    name = "Pegasus"
    model_types = ("pegasus",)
    vocabulary_fields = ("vocab_size",)


class _LastLabel(Family):
    def start_id(self, _model: Any) -> int | None:
        return None

    def starts_with_last_label(self, _model: Any) -> bool:
        return True


class MBart(_LastLabel, Bart):
    """BART with a closing norm behind each stack."""

    name = "mBART"
    model_types = ("mbart",)


class PLBart(_LastLabel):
    """Of programming languages; runs padded."""

    name = "PLBart"
    model_types = ("plbart",)
