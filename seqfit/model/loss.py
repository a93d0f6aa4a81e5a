"""The loss of one micro-batch as a sum, so that the whole global batch can be divided once.

Shapes: B examples, S source, T target, N rows of states, C classes, D model, V vocabulary.

    loss of a step = sum of token losses over all micro-batches / target tokens of the global batch
    of a head      = sum of the examples' losses / examples

A mean of means would favour the tokens of short micro-batches. An example's loss is as transformers has it: of a class
the cross-entropy, of a score the squared error, of labels the mean of their binary cross-entropies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from seqfit.kernels import IGNORED_INDEX, linear_loss_sum
from seqfit.model.families.family import Head, family_of
from seqfit.model.packing import PackedModel
from seqfit.tasks import Label


@dataclass(frozen=True)
class LossRule:
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    chunked: bool = True

    def token_loss_sum(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The reference, from logits [..., V] that exist, in fp32: long sums lose digits in half precision."""
        logits_NV, labels_N = logits.reshape(-1, logits.shape[-1]).float(), labels.flatten()
        loss = F.cross_entropy(logits_NV, labels_N, reduction="sum", label_smoothing=self.label_smoothing)
        if self.z_loss:
            loss = loss + self.z_loss * logits_NV[labels_N != IGNORED_INDEX].logsumexp(-1).square().sum()
        return loss

    def states_loss_sum(
        self, head: Head, states_ND: torch.Tensor, labels_N: torch.Tensor, counted_rows: int | None
    ) -> torch.Tensor:
        if not self.chunked:
            return self.token_loss_sum(head.logits(states_ND), labels_N)
        return linear_loss_sum(
            head.scaled(states_ND),
            head.weight_VD,
            labels_N,
            bias_V=head.bias_V,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            counted_rows=counted_rows,
        )

    def head_loss_sum(self, config: PreTrainedConfig, logits_BC: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Over the examples, as the head's problem type says; labels [B], or [B, C] where any of them may apply."""
        match config.problem_type:
            case "regression":
                return F.mse_loss(logits_BC[:, 0], labels, reduction="sum")
            case "multi_label_classification":
                return F.binary_cross_entropy_with_logits(logits_BC, labels, reduction="sum") / logits_BC.shape[1]
            case _:
                return F.cross_entropy(logits_BC, labels, reduction="sum", label_smoothing=self.label_smoothing)

    @staticmethod
    def blank_label(config: PreTrainedConfig) -> Label:
        """Any label that fits a head with this config, where it does not matter which."""
        match config.problem_type:
            case "regression":
                return 0.0
            case "multi_label_classification":
                return [False] * config.num_labels
            case _:
                return 0


class LossModel(nn.Module):
    """A model together with its loss: one forward gives the sum over a micro-batch, packed or padded.

    This is what parallel training wraps, so that the head's weights are used inside a forward that it sees.
    """

    def __init__(self, model: PreTrainedModel, rule: LossRule, packed: PackedModel | None = None) -> None:
        super().__init__()
        self.model = model
        self._rule = rule
        self._packed = packed
        self._head = family_of(model).head(model)

    def running(
        self, source_lengths: Sequence[int] | None, target_lengths: Sequence[int] | None
    ) -> contextlib.AbstractContextManager[None]:
        """Around forward and backward of a micro-batch, with the lengths of its segments; None if it is padded."""
        if source_lengths is None:
            return contextlib.nullcontext()
        assert self._packed is not None
        return self._packed.running(self._packed.layout(source_lengths, target_lengths))

    def forward(
        self,
        source_ids: torch.Tensor,
        labels: torch.Tensor,
        decoder_ids: torch.Tensor | None = None,
        source_mask: torch.Tensor | None = None,
        counted_rows: int | None = None,
    ) -> torch.Tensor:
        """Sum of the losses over target tokens, or over the examples of a classifier.

        `counted_rows` is the number of real target tokens, known on the host.
        """
        if decoder_ids is None:
            if source_mask is not None:
                logits_BC = self.model(input_ids=source_ids, attention_mask=source_mask).logits
            else:
                assert self._packed is not None
                logits_BC = self._packed.class_logits(source_ids)
            return self._rule.head_loss_sum(self.model.config, logits_BC.float(), labels)
        if source_mask is None:
            assert self._packed is not None
            return self._states_loss(self._packed.decoder_states(source_ids, decoder_ids), labels[0], labels.numel())
        if self._head is None or not self._rule.chunked:
            output = self.model(
                input_ids=source_ids, attention_mask=source_mask, decoder_input_ids=decoder_ids, use_cache=False
            )
            return self._rule.token_loss_sum(output.logits, labels)
        states_BTD = decoder_states(self.model, source_ids, source_mask, decoder_ids)
        return self._states_loss(states_BTD.flatten(0, 1), labels.flatten(), counted_rows)

    def _states_loss(self, states_ND: torch.Tensor, labels_N: torch.Tensor, counted_rows: int | None) -> torch.Tensor:
        assert self._head is not None  # a model that runs packed rows has a known head
        return self._rule.states_loss_sum(self._head, states_ND, labels_N, counted_rows)


def decoder_states(
    model: PreTrainedModel, source_ids_BS: torch.Tensor, source_mask_BS: torch.Tensor, decoder_ids_BT: torch.Tensor
) -> torch.Tensor:
    """[B, T, D]: the decoder's last states of a padded batch."""
    encoding = model.get_encoder()(input_ids=source_ids_BS, attention_mask=source_mask_BS)
    decoding = model.get_decoder()(
        input_ids=decoder_ids_BT,
        encoder_hidden_states=encoding.last_hidden_state,
        encoder_attention_mask=source_mask_BS,
        use_cache=False,
    )
    states_BTD: torch.Tensor = decoding.last_hidden_state
    return states_BTD
