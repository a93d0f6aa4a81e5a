"""Models of transformers run on one packed row of real tokens, [1, N], instead of a padded batch [B, S].

Shapes: B examples, N packed source tokens, M packed target tokens, D model, H heads, K head width, C classes.

    padded   a a a . .      packed   a a a b b c c c c c      linear layers see no padding;
             b b . . .                                        attention works segment by segment
             c c c c c

The modules stay as they are. Plugged in are a registered attention function, which gets the segments by the keyword
`layout` that the stacks pass down, and what the family adds (`Family.install_packing`). Outside of `running` neither
does anything, so `generate` and any padded forward work as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from seqfit.kernels import Layout, attend_blockwise, attend_padded, is_blockwise
from seqfit.model.families.family import CurrentLayout, family_of

NAME = "seqfit"  # of the attention function


class PackedModel:
    """A model that also runs packed rows. One at a time: the layout is the model's while it runs.

    Attention is blockwise where a segment is longer than `blockwise_above` tokens, else torch's own. `lean_on`: the
    device to replace small parts for (`make_lean`); None leaves them as they are.
    """

    def __init__(
        self, model: PreTrainedModel, blockwise_above: int = 0, *, lean_on: torch.device | None = None
    ) -> None:
        if lean_on is not None:
            make_lean(model, lean_on)
        self._model = model
        self._family = family_of(model)
        self._blockwise_above = blockwise_above
        self._current = CurrentLayout()
        model.set_attn_implementation(NAME)
        self._family.install_packing(model, self._current)

    def layout(self, source_lengths: Sequence[int], target_lengths: Sequence[int] | None) -> Layout:
        return Layout(source_lengths, target_lengths, blockwise_above=self._blockwise_above)

    @contextmanager
    def running(self, layout: Layout) -> Iterator[None]:
        """Around forward and backward: recompute runs parts of the forward again in the backward."""
        self._current.layout = layout
        try:
            yield
        finally:
            self._current.layout = None

    def decoder_states(self, source_ids_1N: torch.Tensor, decoder_ids_1M: torch.Tensor) -> torch.Tensor:
        """[M, D]: the decoder's last states."""
        assert self._current.layout is not None
        seen = torch.empty(1, 1, 1, 1, device=source_ids_1N.device)  # transformers passes such a mask on as it is
        source_1ND, target_1MD = self._family.embed(self._model, source_ids_1N, decoder_ids_1M)
        encoding = self._model.get_encoder()(inputs_embeds=source_1ND, attention_mask=seen, layout=self._current.layout)
        decoding = self._model.get_decoder()(
            inputs_embeds=target_1MD,
            attention_mask=seen,
            encoder_hidden_states=encoding.last_hidden_state,
            encoder_attention_mask=seen,
            use_cache=False,
            layout=self._current.layout,
        )
        states_MD: torch.Tensor = decoding.last_hidden_state[0]
        return states_MD

    def class_logits(self, source_ids_1N: torch.Tensor) -> torch.Tensor:
        """[B, C]."""
        assert self._current.layout is not None
        positions_1N = self._current.layout.source.positions(source_ids_1N.device)
        seen = torch.empty(1, 1, 1, 1, device=source_ids_1N.device)
        output = self._model(
            input_ids=source_ids_1N,
            token_type_ids=torch.zeros_like(source_ids_1N),
            position_ids=positions_1N + self._family.first_position(self._model.config),
            attention_mask=seen,
            layout=self._current.layout,
        )
        logits_BC: torch.Tensor = output.logits
        return logits_BC


def make_lean(model: nn.Module, device: torch.device) -> int:
    """Replace the smallest parts of a model by faster or leaner ones; returns how many.

    The same results up to rounding, under the same names:

    nn.Dropout                     -> SeededDropout: one byte per mask element instead of four, a tenth of the time
    T5's ReLU, then nn.Dropout     -> ReluDropout: one tensor is kept for the backward instead of three
    transformers' NewGELU          -> nn.GELU("tanh"): one kernel instead of eight, one tensor kept instead of five
    T5's norm                      -> RMSNorm: one tensor kept instead of three
    """
    family, replaced = family_of(model), 0
    for module in list(model.modules()):
        for name, part in family.replacements(module, on_cpu=device.type == "cpu").items():
            setattr(module, name, part.train(module.training))
            replaced += 1
    return replaced


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
    pairing = layout.pairing_of(module)
    blockwise = is_blockwise(pairing.queries.longest, pairing.keys.longest, layout.blockwise_above)
    attend = attend_blockwise if blockwise else attend_padded
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


# Not compiled: it loops over segments, and a graph of them would be compiled again for every micro-batch.
AttentionInterface.register(NAME, torch.compiler.disable(_attend))
AttentionMaskInterface.register(NAME, sdpa_mask)
