"""The attention of a decoding step: few queries against many keys, and one row's keys for all of its beams.

Shapes: B rows, W open texts of each (beams), Q new tokens (one, but for tokens looked up in the source), S keys, K head
width.

The beams of a row read the same source. transformers copies the source's keys and values for each beam; here they stay
as they are, and the beams of a row become queries of one row:

    queries [B*W, heads, Q, K]   keys [B, heads, S, K]   ->   queries [B, heads, W*Q, K]

Two matrix products are faster for one query on a CPU than the fused function: with 32 rows of 245 tokens in six
layers, 8 heads of 64, on one core: 19 ms against 32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

_PRODUCTS, _FUSED = "seqfit-decoding", "seqfit-decoding-fused"


@contextmanager
def decoding_attention(decoder: Any, device: torch.device) -> Iterator[None]:
    config, chosen = decoder.config, decoder.config._attn_implementation
    if device.type == "cpu" or chosen == "eager":
        config._attn_implementation = _PRODUCTS
    elif chosen == "sdpa":
        config._attn_implementation = _FUSED
    try:
        yield
    finally:
        config._attn_implementation = chosen


def _eager_of(module: nn.Module) -> Callable[..., tuple[torch.Tensor, Any]]:
    """transformers' own function of this model type: it knows about biases, scales and groups of heads."""
    function: Callable[..., tuple[torch.Tensor, Any]] = sys.modules[type(module).__module__].eager_attention_forward
    return function


def _sharing(choose: Callable[[nn.Module], Callable[..., tuple[torch.Tensor, Any]]]) -> Callable[..., Any]:
    def attend(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **settings: Any,
    ) -> tuple[torch.Tensor, Any]:
        own, rows = choose(module), len(key)
        width = len(query) // rows
        if width == 1:
            return own(module, query, key, value, attention_mask, **settings)
        together = query.view(rows, width, *query.shape[1:]).transpose(1, 2).flatten(2, 3)
        mask = None if attention_mask is None else attention_mask[::width, :, :1]  # padding is masked for all queries
        if settings.get("position_bias") is not None and query.shape[2] > 1:
            settings["position_bias"] = settings["position_bias"].repeat(1, 1, width, 1)
        out, weights = own(module, together, key, value, mask, **settings)
        return out.reshape(len(query), query.shape[2], *out.shape[2:]), weights

    return attend


AttentionInterface.register(_PRODUCTS, _sharing(_eager_of))
AttentionMaskInterface.register(_PRODUCTS, eager_mask)
AttentionInterface.register(_FUSED, _sharing(lambda _module: sdpa_attention_forward))
AttentionMaskInterface.register(_FUSED, sdpa_mask)
