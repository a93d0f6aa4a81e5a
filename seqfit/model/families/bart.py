"""BART: absolute positions, a bias on the logits, layer norms; the base of mBART, Marian and Pegasus.

head           logits = states W + final_logits_bias
packed rows    a hook gives `embed_positions` the positions within each segment
stages         positions, their norm and their dropout belong to the first block, a closing norm to the last one
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.model.families.family import CurrentLayout, Family, Head, linear_head, remove_parts
from seqfit.model.flops import ModelShape

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
