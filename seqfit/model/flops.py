"""How many floating-point operations a training step needs on its real tokens.

In: a model's config and the lengths of a step's examples. Out: the operations of forward and backward.

Counted are the multiplications that the model's mathematics needs: linear layers, attention within each example, the
head; twice as many in the backward. Padding and recomputation are work that a better engine would not do, so they
don't count. A multiplication and its addition are two operations.

    one linear layer [512 -> 2048] on 10 tokens: 2 x 10 x 512 x 2048 forward, 6 x 10 x 512 x 2048 with the backward
    attention over S tokens: S x S pairs; causal over T tokens: T x (T + 1) / 2 pairs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from seqfit.data import CostModel
from seqfit.model.families import ModelShape, find_family

_ATTENTION_TIME = 2.0  # measured on a CPU (benchmarks/engine): 18% of the time for 9% of the operations


def read_model_shape(config: Mapping[str, Any]) -> tuple[ModelShape | None, str]:
    """From a config as a dictionary; None and the reason where this kind of model is not known."""
    shape = find_family(config.get("model_type")).shape(config)
    return shape, "" if shape else f"FLOPs of a model of type '{config.get('model_type')}' are not counted"


def count_training_flops(shape: ModelShape, source: npt.ArrayLike, target: npt.ArrayLike) -> int:
    """Forward and backward on examples of these lengths; targets of length 0 for a classifier."""
    sources, targets = np.asarray(source, np.int64), np.asarray(target, np.int64)
    projection = shape.width * shape.attention_width
    source_tokens, target_tokens = int(sources.sum()), int(targets.sum())
    source_pairs = int((sources * sources).sum())
    causal_pairs = int((targets * (targets + 1)).sum())  # each pair is in two products, half of them are masked
    cross_pairs = int((sources * targets).sum())
    encoder = source_tokens * (4 * projection + shape.encoder_feed_forward) + 2 * source_pairs * shape.attention_width
    cross = 2 * (target_tokens + source_tokens) * projection + 2 * cross_pairs * shape.attention_width
    decoder = target_tokens * (4 * projection + shape.decoder_feed_forward) + causal_pairs * shape.attention_width
    heads = target_tokens * shape.width * shape.vocabulary + len(sources) * shape.example_head
    return 2 * 3 * (shape.encoder_layers * encoder + shape.decoder_layers * (decoder + cross) + heads)


def build_cost_model(shape: ModelShape) -> CostModel:
    """What balances batches: the operations of an example, those of attention counted as the time that they take."""
    projection, pair = shape.width * shape.attention_width, 2 * shape.attention_width * _ATTENTION_TIME
    encoder, decoder = shape.encoder_layers, shape.decoder_layers
    return CostModel(
        source_token=encoder * (4 * projection + shape.encoder_feed_forward) + decoder * 2 * projection,
        target_token=decoder * (6 * projection + shape.decoder_feed_forward) + shape.width * shape.vocabulary,
        source_pair=encoder * pair,
        target_pair=decoder * pair / 2,
        cross_pair=decoder * pair,
        example=shape.example_head,
    )
