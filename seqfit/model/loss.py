"""The loss of one micro-batch as a sum, so that the whole global batch can be divided once.

Shapes: B examples, S source, T target, C classes, V vocabulary.

    loss of a step = sum of token losses over all micro-batches / target tokens of the global batch

A mean of means would favour the tokens of short micro-batches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def sequence_loss_sum(
    model: nn.Module,
    source_ids_BS: torch.Tensor,
    source_mask_BS: torch.Tensor,
    decoder_ids_BT: torch.Tensor,
    labels_BT: torch.Tensor,
) -> torch.Tensor:
    """Text-to-text: sum of the losses over target tokens."""
    output = model(
        input_ids=source_ids_BS, attention_mask=source_mask_BS, decoder_input_ids=decoder_ids_BT, use_cache=False
    )
    return token_loss_sum(output.logits, labels_BT)


def class_loss_sum(
    model: nn.Module, source_ids_BS: torch.Tensor, source_mask_BS: torch.Tensor, labels_B: torch.Tensor
) -> torch.Tensor:
    """Classifier: sum of the losses over examples."""
    return F.cross_entropy(class_logits(model, source_ids_BS, source_mask_BS), labels_B, reduction="sum")


def class_logits(model: nn.Module, source_ids_BS: torch.Tensor, source_mask_BS: torch.Tensor) -> torch.Tensor:
    """[B, C] in fp32."""
    logits_BC: torch.Tensor = model(input_ids=source_ids_BS, attention_mask=source_mask_BS).logits
    return logits_BC.float()


def token_loss_sum(logits_BTV: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
    """Labels of -100 are ignored. In fp32, for sums over a large vocabulary lose digits in half precision."""
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), labels_BT.flatten(), reduction="sum")
