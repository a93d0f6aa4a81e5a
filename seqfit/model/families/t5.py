"""T5, v1.1, Flan-T5, mT5, UMT5 and ByT5: relative positions as a table of biases by distance, RMS norms, one embedding.

head            T5          logits = (states * d_model**-0.5) W     the scale belongs to the tied head
                v1.1, mT5   logits = states W
packed rows     `compute_bias` of each attention module gives a table by distance instead of a tensor of N x N
fp16            gate(x W0) * (x W1) sums to more than 65,504 in `wo`, fp16's largest number, in v1.1, mT5 and UMT5
stages          the biases of a stack's first block are used by all of its blocks, so each stage has a copy of the
                table: the biases themselves would be larger to send. UMT5 has a table in every block
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import TextEncoder
from seqfit.kernels import ReluDropout, RMSNorm, distances
from seqfit.model.families.family import CurrentLayout, Family, Head, delete_blocks, linear_head, remove_parts
from seqfit.model.flops import ModelShape

_SCALED_IF = {"t5": "scale_decoder_outputs", "umt5": "tie_word_embeddings"}  # fields of the config
_CROSS_KEY_VALUE = re.compile(r"EncDecAttention\.[kv]$")


class ByteEncoder(TextEncoder):
    """ByT5's bytes + 3 without the tokenizer's loop over letters, which is some 100 times slower."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self._special = re.compile("|".join(map(re.escape, tokenizer.added_tokens_encoder)))

    def encode(self, texts: Sequence[str], languages: Sequence[str] | str | None = None) -> list[list[int]]:
        assert self._end_id is not None
        offset: int = self._tokenizer.offset
        return [
            self._call(text=[text])[0]
            if self._special.search(text)
            else [*(np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) + offset).tolist(), self._end_id]
            for text in texts
        ]

    encode_targets = encode


class T5Layers(Family):
    """What all types with T5's layers share, whatever their attention."""

    block_list = "block"
    feed_forward_names = ("dense", "wi", "wo")
    was_eager_before_5 = True
    scaled_tied_head_before_5 = True

    def fp32_in_fp16(self, model: nn.Module) -> list[nn.Module]:
        gated = (layer for layer in model.modules() if type(layer).__name__.endswith("DenseGatedActDense"))
        return [layer.get_submodule("wo") for layer in gated]

    def has_weight_decay(self, name: str, parameter: nn.Parameter) -> bool:
        return super().has_weight_decay(name, parameter) and "relative_attention_bias" not in name


class T5(T5Layers):
    name = "T5"
    model_types = ("t5", "mt5", "umt5")
    is_packed = True

    def shape(self, config: Mapping[str, Any]) -> ModelShape:
        width = config["d_model"]
        feed_forward = (3 if "gated" in config["feed_forward_proj"] else 2) * width * config["d_ff"]
        return ModelShape(
            width=width,
            attention_width=config["num_heads"] * config["d_kv"],
            encoder_layers=config["num_layers"],
            encoder_feed_forward=feed_forward,
            decoder_layers=config.get("num_decoder_layers") or config["num_layers"],
            decoder_feed_forward=feed_forward,
            vocabulary=config["vocab_size"],
        )

    def text_encoder(self, tokenizer: PreTrainedTokenizerBase) -> TextEncoder | None:
        return ByteEncoder(tokenizer) if type(tokenizer).__name__ == "ByT5Tokenizer" else None

    def head(self, model: PreTrainedModel) -> Head | None:
        field = _SCALED_IF.get(model.config.model_type)
        is_scaled = field is not None and getattr(model.config, field)
        return linear_head(model, float(model.config.d_model) ** -0.5 if is_scaled else 1.0)

    def install_packing(self, model: PreTrainedModel, current: CurrentLayout) -> None:
        for module in model.modules():
            if hasattr(module, "compute_bias"):
                is_cross = module.is_decoder and not module.is_causal
                compute_bias = (_cross_bias if is_cross else _distance_bias)(module, current)
                module.compute_bias = torch.compiler.disable(compute_bias)
                module.has_relative_attention_bias = is_cross or module.has_relative_attention_bias

    def replacements(self, module: nn.Module, *, on_cpu: bool) -> dict[str, nn.Module]:
        parts = super().replacements(module, on_cpu=on_cpu)
        for name, part in module.named_children():
            if _is_norm(part):
                parts[name] = RMSNorm(part.weight, part.variance_epsilon)
        act, dropout = getattr(module, "act", None), getattr(module, "dropout", None)
        follows = type(module).__name__.endswith("DenseActDense")  # its forward is wo(dropout(act(wi(x))))
        if follows and on_cpu and type(act) is nn.ReLU and type(dropout) is nn.Dropout:
            parts |= {"act": ReluDropout(dropout.p), "dropout": nn.Identity()}
        return parts

    def keep_blocks(self, stack: Any, kept: range) -> None:
        blocks = self.stack_blocks(stack)
        first: Any = blocks[kept.start]
        if hasattr(first.layer[0].SelfAttention, "relative_attention_bias"):
            super().keep_blocks(stack, kept)
            return
        ends = kept.stop == len(blocks)
        delete_blocks(blocks, set(range(1, len(blocks))) - set(kept))
        setattr(blocks, "0", _BiasOnly(blocks[0]))
        self.open_edges(stack, begins=False, ends=ends)

    def open_edges(self, stack: Any, *, begins: bool, ends: bool) -> None:
        if not ends:
            remove_parts(stack, "final_layer_norm")
        stack.dropout = _EdgeDropout(stack.dropout, begins=begins, ends=ends)
        stack.register_forward_pre_hook(stack.dropout.restart)

    def is_cross_key_value(self, name: str) -> bool:
        return _CROSS_KEY_VALUE.search(name) is not None


def _is_norm(part: nn.Module) -> TypeGuard[RMSNorm]:
    """T5LayerNorm and its copies in mT5 and UMT5, in fp32: a weight, an epsilon, no bias."""
    if not type(part).__name__.endswith("T5LayerNorm"):
        return False
    return isinstance(part.weight, nn.Parameter) and part.weight.dtype == torch.float32


def _distance_bias(module: Any, current: CurrentLayout) -> Callable[..., torch.Tensor]:
    own = module.compute_bias

    def compute_bias(*lengths: int, **settings: Any) -> torch.Tensor:
        if current.layout is None:
            bias_1HQK: torch.Tensor = own(*lengths, **settings)
            return bias_1HQK
        return bias_by_distance(module, current.layout.pairing_of(module).longest, settings.get("device"))

    return compute_bias


def _cross_bias(module: Any, current: CurrentLayout) -> Callable[..., torch.Tensor]:
    """transformers fills a tensor of query x key with zeros, which packed rows would make large."""

    def compute_bias(queries: int, keys: int, device: Any = None, past_seen_tokens: int = 0) -> torch.Tensor:
        if current.layout is None:
            return torch.zeros(1, module.n_heads, queries, keys, device=device, dtype=module.q.weight.dtype)
        return torch.empty(0, device=device)

    return compute_bias


def bias_by_distance(attention: Any, longest: int, device: torch.device | None = None) -> torch.Tensor:
    """[H, R] from the bucket table of an attention module; gradients reach the table.

    The table is called, since FSDP gathers a module's weights when it is called; until then an offloaded one lies on
    the host, whatever the `device` that computes.
    """
    table: nn.Embedding = attention.relative_attention_bias
    bias_RH: torch.Tensor = table(_buckets(attention, distances(longest, device or table.weight.device)))
    return bias_RH.t()


def _buckets(attention: Any, distances_R: torch.Tensor) -> torch.Tensor:
    """The module's own rule. T5's is static and takes its settings, UMT5's reads them from the module."""
    settings: dict[str, Any] = {}
    if isinstance(type(attention).__dict__.get("_relative_position_bucket"), staticmethod):
        settings = {
            "bidirectional": not attention.is_decoder,
            "num_buckets": attention.relative_attention_num_buckets,
            "max_distance": attention.relative_attention_max_distance,
        }
    buckets_R: torch.Tensor = attention._relative_position_bucket(distances_R, **settings)
    return buckets_R


class _BiasOnly(nn.Module):
    """In the place of a stack's first block: only its table of position biases, for the blocks behind it."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        attention = block.layer[0].SelfAttention
        for name in ("q", "k", "v", "o"):
            delattr(attention, name)
        self.layer = nn.ModuleList([nn.ModuleDict({"SelfAttention": attention})])  # the block's own names

    def forward(self, states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
        """As a block's, which passes on the biases of its own and of its cross-attention."""
        attention: Any = self.layer[0].SelfAttention
        length = states.shape[1]
        return states, attention.compute_bias(length, length, device=states.device), None


class _EdgeDropout(nn.Module):
    """A stack calls one dropout twice: before its first block and behind its last norm. Here at most one of both."""

    def __init__(self, dropout: nn.Module, *, begins: bool, ends: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self._is_here = (begins, ends)
        self._calls = 0

    def restart(self, *_: Any) -> None:
        """Before each forward of the stack: the last one may have failed between the two calls."""
        self._calls = 0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        is_here = self._is_here[self._calls]
        self._calls += 1
        dropped: torch.Tensor = self.dropout(states) if is_here else states
        return dropped
