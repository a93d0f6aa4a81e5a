"""Answers from a model: encoder once, then loss and generated text from the same encoding.

Shapes: B examples, S source, T target, D model, C classes.
"""

from __future__ import annotations

import copy

import torch
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from seqfit.model.loss import token_loss_sum


def build_generation_config(model: PreTrainedModel, beams: int, max_new_tokens: int) -> GenerationConfig:
    """The model's own settings without sampling, with our beams and length."""
    config = copy.deepcopy(model.generation_config)
    config.update(do_sample=False, num_beams=beams, max_new_tokens=max_new_tokens, max_length=None)
    if beams == 1:
        config.update(early_stopping=False, length_penalty=1.0)  # settings of a beam search, which warn without one
    return config


def encode(model: PreTrainedModel, source_ids_BS: torch.Tensor, source_mask_BS: torch.Tensor) -> BaseModelOutput:
    """The encoder's output, to be used for loss and generation alike."""
    return model.get_encoder()(input_ids=source_ids_BS, attention_mask=source_mask_BS)


def encoded_loss_sum(
    model: PreTrainedModel,
    encoding: BaseModelOutput,
    source_mask_BS: torch.Tensor,
    decoder_ids_BT: torch.Tensor,
    labels_BT: torch.Tensor,
) -> torch.Tensor:
    """Sum of token losses, without a second pass of the encoder."""
    output = model(
        encoder_outputs=encoding, attention_mask=source_mask_BS, decoder_input_ids=decoder_ids_BT, use_cache=False
    )
    return token_loss_sum(output.logits, labels_BT)


def generate(
    model: PreTrainedModel, encoding: BaseModelOutput, source_mask_BS: torch.Tensor, config: GenerationConfig
) -> torch.Tensor:
    """Token ids [B, T] of the best answers, the start token included.

    The cache is ours because `generate` sizes its own by the encoder's layers and fails where the decoder has more.
    """
    ids_BT: torch.Tensor = model.generate(
        encoder_outputs=encoding,
        attention_mask=source_mask_BS,
        generation_config=config,
        past_key_values=EncoderDecoderCache(DynamicCache(), DynamicCache()),
    )
    return ids_BT
