"""Answers of a model: the encoder once, then one pass over the targets for the loss and the start of the search.

Shapes: B rows, S source, T target, N real target tokens, H heads, K head width, D model, V vocabulary.

    encode         source ids [B, S]             -> states of the encoder [B, S, D]
    read_targets   those, decoder ids [B, T]     -> states of the decoder [B, T, D], and the sources for a search
    score_targets  the decoder's states, labels  -> sum of token losses, and the likeliest token at each position

The likeliest tokens are already the answer of a greedy search where they equal the target: the decoder saw just the
tokens that it would have generated. `find_answered` finds these rows, which need no search.

    target  7 9 1 (end)   likeliest  7 9 1   answered
            7 9 1                    7 4 1   not: 7 is followed by 4, and what follows that is not known
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from seqfit.generation.cache import Sources
from seqfit.generation.conditions import NOT_FORCED, find_first_ids
from seqfit.generation.rule import SearchRule
from seqfit.generation.start import Start
from seqfit.kernels import IGNORED_INDEX
from seqfit.model import LossRule, family_of

HEAD_ROWS = 256  # whose logits exist at a time: 31 MiB in T5, 244 MiB in mT5


def encode(model: PreTrainedModel, source_ids_BS: torch.Tensor, source_mask_BS: torch.Tensor | None) -> BaseModelOutput:
    """The encoder's output, to be used for loss and generation alike. No mask: no row is padded."""
    return model.get_encoder()(input_ids=source_ids_BS, attention_mask=source_mask_BS)


def read_targets(
    model: PreTrainedModel,
    encoding: BaseModelOutput,
    source_mask_BS: torch.Tensor | None,
    source_lengths: Sequence[int],
    decoder_ids_BT: torch.Tensor,
) -> tuple[torch.Tensor, Sources]:
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    output = model.get_decoder()(
        input_ids=decoder_ids_BT,
        encoder_hidden_states=encoding.last_hidden_state,
        encoder_attention_mask=source_mask_BS,
        past_key_values=cache,
        use_cache=True,
    )
    layers = [(layer.keys, layer.values) for layer in cache.cross_attention_cache.layers]
    return output.last_hidden_state, Sources(layers, tuple(source_lengths))


def score_targets(
    model: PreTrainedModel, states_BTD: torch.Tensor, labels_BT: torch.Tensor, terms: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the token losses, and the likeliest tokens [B, T], -100 where the labels are.

    `terms`: so many labels count, which the host knows and needs not ask the device for.
    """
    head = family_of(model).head(model)
    assert head is not None  # explain_why_not_own said so
    places_N = (labels_BT != IGNORED_INDEX).flatten().nonzero_static(size=terms).squeeze(1)
    states_ND = states_BTD.flatten(0, 1).index_select(0, places_N)
    labels_N = labels_BT.flatten().index_select(0, places_N)
    loss_sum = states_BTD.new_zeros((), dtype=torch.float32)
    likeliest_N = torch.empty_like(labels_N)
    for first in range(0, len(labels_N), HEAD_ROWS):
        rows = slice(first, first + HEAD_ROWS)
        logits_NV = head.logits(states_ND[rows]).float()  # sums over a large vocabulary lose digits in half precision
        loss_sum += F.cross_entropy(logits_NV, labels_N[rows], reduction="sum")
        likeliest_N[rows] = logits_NV.argmax(-1)
    likeliest_BT = labels_BT.new_full(labels_BT.shape, IGNORED_INDEX)
    likeliest_BT.view(-1).index_copy_(0, places_N, likeliest_N)
    return loss_sum, likeliest_BT


def sum_token_losses(
    model: PreTrainedModel,
    encoding: BaseModelOutput,
    source_mask_BS: torch.Tensor,
    decoder_ids_BT: torch.Tensor,
    labels_BT: torch.Tensor,
) -> torch.Tensor:
    """Of a model whose head is not known here: all logits exist at once, and are gone before the search begins."""
    logits_BTV = model(
        encoder_outputs=encoding, attention_mask=source_mask_BS, decoder_input_ids=decoder_ids_BT, use_cache=False
    ).logits
    return LossRule().token_loss_sum(logits_BTV, labels_BT)


def find_answered(
    likeliest_BT: torch.Tensor, labels_BT: torch.Tensor, rule: SearchRule, starts: Sequence[Start] | None = None
) -> torch.Tensor:
    """Which rows [B] a greedy search would answer with exactly their target: it must be complete, and not too long.

    A first token that is forced must be the target's; what the decoder saw as likeliest there does not matter.
    """
    starts = starts or [Start(rule.start_id, rule.first_id)] * len(labels_BT)
    first_B = find_first_ids(starts, labels_BT.device)
    is_forced_B = first_B != NOT_FORCED
    likeliest_BT = likeliest_BT.clone()
    likeliest_BT[:, 0] = torch.where(is_forced_B, first_B, likeliest_BT[:, 0])
    longest = rule.max_new_tokens - (rule.last_id is not None)  # the last token of all is forced
    lengths_B = (labels_BT != IGNORED_INDEX).sum(1)
    is_end_BT = torch.isin(labels_BT, torch.tensor(rule.end_ids, dtype=torch.long, device=labels_BT.device))
    is_last_end_B = is_end_BT.gather(1, (lengths_B - 1).clamp(min=0)[:, None])[:, 0]
    complete_B = is_last_end_B & (is_end_BT.sum(1) == 1) & (lengths_B <= longest)
    return complete_B & (likeliest_BT == labels_BT).all(1)
