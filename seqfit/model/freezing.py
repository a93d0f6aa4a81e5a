"""Frozen parts: weights that stay as they are, and so need no gradient and no optimizer state.

In: a model and the names of parts. Out: the same model, and a report with a sentence for the run's events.

    embeddings   token and position tables. A head that is tied to them (T5, BART) is the same matrix and stays too.
    encoder      its blocks with their relative-position tables, norms and own position tables. Not the token table,
                 which the decoder shares. Of a classifier: the base model but for its tables and the pooler, which
                 feeds the head and learns with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.model.blocks import find_blocks
from seqfit.units import format_count

_SUMMED_AT_ONCE = 1 << 20  # bytes


@dataclass(frozen=True)
class FreezeReport:
    """Numbers of weights, each tensor counted once, and what was done in a sentence."""

    trainable: int
    frozen: int
    text: str


def freeze_parts(model: PreTrainedModel, parts: Sequence[str]) -> FreezeReport:
    """Freeze in place; parts are 'embeddings' and 'encoder'. What was frozen before stays so."""
    tables = _find_tables(model)
    chosen = {"embeddings": tables, "encoder": _find_encoder(model, tables)}
    for part in parts:
        for parameter in chosen[part]:
            parameter.requires_grad_(False)
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in model.parameters()) - trainable
    numbers = f"{format_count(frozen)} weights stay as they are, {format_count(trainable)} learn"
    text = f"{' and '.join(parts)} frozen: {numbers}"
    if "embeddings" in parts and _has_tied_head(model):
        text += "; the head is the same matrix as the embeddings and stays, too"
    return FreezeReport(trainable, frozen, text)


def _find_tables(model: nn.Module) -> list[nn.Parameter]:
    """Embedding matrices outside the blocks: inside there are T5's relative-position tables."""
    inside = {id(part) for block in find_blocks(model, "freeze").values() for part in block.modules()}
    tables = [part for part in model.modules() if isinstance(part, nn.Embedding) and id(part) not in inside]
    return _each_once(parameter for table in tables for parameter in table.parameters())


def _find_encoder(model: PreTrainedModel, tables: list[nn.Parameter]) -> list[nn.Parameter]:
    if model.config.is_encoder_decoder:
        kept = list(model.get_decoder().parameters())  # the token table
        return _without(model.get_encoder().parameters(), kept)
    pooler = getattr(model.base_model, "pooler", None)
    kept = [*tables, *(pooler.parameters() if pooler is not None else ())]
    return _without(model.base_model.parameters(), kept)


def _has_tied_head(model: PreTrainedModel) -> bool:
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def _each_once(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return list({id(parameter): parameter for parameter in parameters}.values())


def _without(parameters: Iterable[nn.Parameter], kept: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    spared = {id(parameter) for parameter in kept}
    return [parameter for parameter in parameters if id(parameter) not in spared]


def sum_frozen_bits(model: nn.Module) -> int:
    """A number that changes with any byte of a weight that does not learn, and with its place; 0 where all learn."""
    whole = 0
    for weight in model.parameters():
        if not weight.requires_grad:
            for bits in weight.detach().contiguous().flatten().view(torch.uint8).split(_SUMMED_AT_ONCE):
                places = torch.arange(1, 2 * len(bits), 2, device=bits.device)  # int64, which wraps around
                whole = (whole * 31 + int((bits * (places * places * 2654435761 + places)).sum())) % 2**61
    return whole
