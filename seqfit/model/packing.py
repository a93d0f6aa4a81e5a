"""Stock transformers models run on one packed row of real tokens, [1, N], instead of a padded batch [B, S].

Shapes: B examples, N packed source tokens, M packed target tokens, D model, H heads, K head width, C classes.

    padded   a a a . .      packed   a a a b b c c c c c      linear layers see no padding;
             b b . . .                                        attention works segment by segment
             c c c c c

The modules stay as they are. What is plugged in, and does nothing while `running` is off, so that `generate` and any
padded forward work as ever:
- a registered attention function, told the segments by the keyword `layout`, which the stacks hand down;
- T5: `compute_bias` of each attention module, which hands over a table by distance instead of an N x N tensor;
- BART's kind: a hook that gives `embed_positions` the positions within each segment;
- BERT's kind: a hook behind the encoder that hands the first token of each segment to the classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from seqfit.kernels.blockwise import attend_segments
from seqfit.kernels.layout import Layout, Pairing, bias_by_distance, is_blockwise
from seqfit.kernels.padded import attend_padded
from seqfit.model.families import BART_TYPES, PACKED_TYPES, T5_TYPES
from seqfit.model.head import find_head

NAME = "seqfit"  # of the attention function
BERT_TYPES = {"bert": 0, "electra": 0, "roberta": 1, "xlm-roberta": 1, "camembert": 1}  # 1: positions after the pad id


class PackedModel:
    """A stock model that also runs packed rows. One at a time: the layout is the model's while it runs.

    Attention is blockwise where a segment is longer than `blockwise_above` tokens, else torch's own.
    """

    def __init__(self, model: PreTrainedModel, blockwise_above: int = 0) -> None:
        self._model = model
        self._blockwise_above = blockwise_above
        self._layout: Layout | None = None
        kind = model.config.model_type
        model.set_attn_implementation(NAME)
        if kind in T5_TYPES:
            self._plug_bias()
        elif kind in BART_TYPES:
            self._plug_positions()
        else:
            self._first_position = BERT_TYPES[kind] * (1 + int(model.config.pad_token_id or 0))
            model.base_model.encoder.register_forward_hook(self._keep_first_tokens)

    def layout(self, source_lengths: Sequence[int], target_lengths: Sequence[int] | None) -> Layout:
        """Of a packed micro-batch."""
        return Layout(source_lengths, target_lengths, blockwise_above=self._blockwise_above)

    @contextmanager
    def running(self, layout: Layout) -> Iterator[None]:
        """Around forward and backward: recompute runs parts of the forward again in the backward."""
        self._layout = layout
        try:
            yield
        finally:
            self._layout = None

    def decoder_states(self, source_ids_1N: torch.Tensor, decoder_ids_1M: torch.Tensor) -> torch.Tensor:
        """[M, D]: the decoder's last states."""
        assert self._layout is not None
        seen = torch.empty(1, 1, 1, 1, device=source_ids_1N.device)  # transformers hands such a mask on as it is
        # One lookup for both sides: each has a gradient of the vocabulary's size.
        embedded = self._model.get_input_embeddings()(torch.cat([source_ids_1N, decoder_ids_1M], 1))
        source_1ND, target_1MD = embedded.split([source_ids_1N.shape[1], decoder_ids_1M.shape[1]], 1)
        scale = getattr(self._model.get_encoder(), "embed_scale", 1.0)
        if scale != 1.0:  # Marian's and Pegasus's encoders scale only what they look up, their decoders all they get
            source_1ND = source_1ND * scale
        encoding = self._model.get_encoder()(inputs_embeds=source_1ND, attention_mask=seen, layout=self._layout)
        decoding = self._model.get_decoder()(
            inputs_embeds=target_1MD,
            attention_mask=seen,
            encoder_hidden_states=encoding.last_hidden_state,
            encoder_attention_mask=seen,
            use_cache=False,
            layout=self._layout,
        )
        states_MD: torch.Tensor = decoding.last_hidden_state[0]
        return states_MD

    def class_logits(self, source_ids_1N: torch.Tensor) -> torch.Tensor:
        """[B, C]."""
        assert self._layout is not None
        positions_1N = self._layout.source.positions(source_ids_1N.device) + self._first_position
        seen = torch.empty(1, 1, 1, 1, device=source_ids_1N.device)
        output = self._model(
            input_ids=source_ids_1N,
            token_type_ids=torch.zeros_like(source_ids_1N),
            position_ids=positions_1N,
            attention_mask=seen,
            layout=self._layout,
        )
        logits_BC: torch.Tensor = output.logits
        return logits_BC

    def _plug_bias(self) -> None:
        for module in self._model.modules():
            if hasattr(module, "compute_bias"):
                crosswise = module.is_decoder and not module.is_causal
                compute_bias = self._bias_of_cross(module) if crosswise else self._bias_of(module)
                module.compute_bias = torch.compiler.disable(compute_bias)
                module.has_relative_attention_bias = crosswise or module.has_relative_attention_bias

    def _bias_of(self, module: Any) -> Callable[..., torch.Tensor]:
        stock = module.compute_bias

        def compute_bias(*lengths: int, **settings: Any) -> torch.Tensor:
            if self._layout is None:
                bias_1HQK: torch.Tensor = stock(*lengths, **settings)
                return bias_1HQK
            return bias_by_distance(module, find_pairing(module, self._layout).longest, settings.get("device"))

        return compute_bias

    def _bias_of_cross(self, module: Any) -> Callable[..., torch.Tensor]:
        """Stock fills a tensor of query x key with zeros, which packed rows would make large."""

        def compute_bias(queries: int, keys: int, device: Any = None, past_seen_tokens: int = 0) -> torch.Tensor:
            if self._layout is None:
                return torch.zeros(1, module.n_heads, queries, keys, device=device, dtype=module.q.weight.dtype)
            return torch.empty(0, device=device)

        return compute_bias

    def _plug_positions(self) -> None:
        for stack, side in ((self._model.get_encoder(), "source"), (self._model.get_decoder(), "target")):
            stack.embed_positions.register_forward_pre_hook(self._positions_of(side), with_kwargs=True)

    def _positions_of(self, side: str) -> Callable[..., tuple[Any, dict[str, Any]] | None]:
        def give_positions(
            module: nn.Module, inputs: tuple[Any, ...], settings: dict[str, Any]
        ) -> tuple[Any, dict[str, Any]] | None:
            if self._layout is None:
                return None
            positions_1N = getattr(self._layout, side).positions(next(module.parameters()).device)
            return inputs, settings | {"position_ids": positions_1N[0]}

        return give_positions

    def _keep_first_tokens(self, _module: nn.Module, _inputs: Any, output: Any) -> Any:
        if self._layout is not None:
            states_1ND = output.last_hidden_state
            first_B = self._layout.source.first_tokens(states_1ND.device)
            output.last_hidden_state = states_1ND[0].index_select(0, first_B)[:, None]
        return output


def explain_why_not_packed(model: PreTrainedModel) -> str | None:
    """Why a model can't run packed rows; None if it can."""
    kind = model.config.model_type
    known = PACKED_TYPES if model.config.is_encoder_decoder else tuple(BERT_TYPES)
    if kind not in known:
        return f"{kind} has no packed path; those that have: {', '.join(known)}"
    if model.config.is_encoder_decoder and find_head(model) is None:
        return "an encoder-decoder that classifies has no packed path"
    if model.config.is_encoder_decoder and not _has_one_embedding(model):
        return "its encoder and its decoder have embeddings of their own"
    position_type = getattr(model.config, "position_embedding_type", None) or "absolute"
    return None if position_type == "absolute" else f"its positions are {position_type}, which need the padded form"


def _has_one_embedding(model: PreTrainedModel) -> bool:
    sides = [stack.get_input_embeddings().weight for stack in (model.get_encoder(), model.get_decoder())]
    return sides[0] is sides[1]


def find_pairing(module: Any, layout: Layout) -> Pairing:
    """Which queries and keys an attention module sees."""
    if getattr(module, "is_causal", False):
        return layout.decoder
    return layout.cross if getattr(module, "is_decoder", False) else layout.encoder


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: torch.Tensor | None = None,
    layout: Layout | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """The registered function: by segments where there is a layout, else transformers' own."""
    if layout is None:
        output: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, position_bias=position_bias, **settings
        )
        return output
    q_NHK, k_NHK, v_NHK = (states_1HNK[0].transpose(0, 1) for states_1HNK in (query, key, value))
    pairing = find_pairing(module, layout)
    blockwise = is_blockwise(pairing.queries.longest, pairing.keys.longest, layout.blockwise_above)
    attend = attend_segments if blockwise else attend_padded
    output_NHK = attend(
        q_NHK,
        k_NHK,
        v_NHK,
        pairing,
        bias_HR=None if position_bias is None or position_bias.numel() == 0 else position_bias,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout=dropout,
    )
    return output_NHK[None], None


# Not compiled: it loops over segments, and a graph of them would be made anew for every micro-batch.
AttentionInterface.register(NAME, torch.compiler.disable(_attend))
AttentionMaskInterface.register(NAME, sdpa_mask)
