"""Takes one stage's part out of a model: its blocks, and the embedding, norms and head between or around them.

In: a whole model and which blocks to keep. Out: the same model object without the rest, which is freed. Every
weight keeps its name, and the stacks' own forwards run what is left of them. What a stack does before its first block
and behind its last one is left out where that block is elsewhere (`Family.keep_blocks`).

    T5 of 3 + 3 blocks, 2 stages, 4 blocks for the first one
    stage 0   shared   encoder.block.0 1 2   encoder.final_layer_norm   decoder.block.0
    stage 1   shared (the head's, tied)      decoder.block.1 2          decoder.final_layer_norm   lm_head
              decoder.block.0...relative_attention_bias
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from seqfit.model import family_of

SIDES = ("encoder", "decoder")


@dataclass(frozen=True)
class StagePart:
    """The blocks of one stage."""

    encoder: range  # numbers within their stack; empty: the stage has none
    decoder: range
    is_first: bool
    is_last: bool


def assign_parts(split: Sequence[range], encoder_blocks: int) -> list[StagePart]:
    """From ranges over all blocks, the encoder's first."""
    return [
        StagePart(
            encoder=range(blocks.start, max(blocks.start, min(blocks.stop, encoder_blocks))),
            decoder=range(max(blocks.start - encoder_blocks, 0), max(blocks.stop - encoder_blocks, 0)),
            is_first=stage == 0,
            is_last=stage == len(split) - 1,
        )
        for stage, blocks in enumerate(split)
    ]


def keep_part(model: PreTrainedModel, part: StagePart) -> None:
    """In place. A stage that holds the head of a model with tied weights keeps the embedding's name for it."""
    family = family_of(model)
    head_is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if not (part.is_first or (part.is_last and head_is_tied)):
        model.base_model.shared = None  # and of both sides: the first stage looks all tokens up
        for side in SIDES:
            getattr(model.base_model, side).embed_tokens = None
    if not part.is_last:
        model.lm_head = None
    for side in SIDES:
        blocks: range = getattr(part, side)
        if blocks:
            family.keep_blocks(getattr(model.base_model, side), blocks)
        else:
            setattr(model.base_model, side, None)
