"""How many floating-point operations a training step needs on its real tokens.

In: what a family reads from its config, and the lengths of a step's examples. Out: the operations of forward and
backward.

Counted are the multiplications that the model's mathematics needs: linear layers, attention within each example, the
head; twice as many in the backward. Padding and recomputation are work that a better engine would not do, so they
don't count. A multiplication and its addition are two operations.

    one linear layer [512 -> 2048] on 10 tokens: 2 x 10 x 512 x 2048 forward, 6 x 10 x 512 x 2048 with the backward
    attention over S tokens: S x S pairs; causal over T tokens: T x (T + 1) / 2 pairs
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seqfit.data import CostModel

_ATTENTION_TIME = 2.0  # measured on a CPU (benchmarks/engine): 18% of the time for 9% of the operations


@dataclass(frozen=True)
class ModelShape:
    """What the FLOPs depend on. Feed-forward sizes are multiplications for one token and layer."""

    width: int
    attention_width: int  # of all heads together
    encoder_layers: int
    encoder_feed_forward: int
    decoder_layers: int = 0
    decoder_feed_forward: int = 0
    vocabulary: int = 0  # columns of the head, for each target token
    example_head: int = 0  # a classifier's multiplications for each example

    def training_flops(self, source: npt.ArrayLike, target: npt.ArrayLike) -> int:
        """Forward and backward on examples of these lengths; targets of length 0 for a classifier."""
        sources, targets = np.asarray(source, np.int64), np.asarray(target, np.int64)
        projection = self.width * self.attention_width
        source_tokens, target_tokens = int(sources.sum()), int(targets.sum())
        source_pairs = int((sources * sources).sum())
        causal_pairs = int((targets * (targets + 1)).sum())  # each pair is in two products, half of them are masked
        cross_pairs = int((sources * targets).sum())
        encoder = source_tokens * (4 * projection + self.encoder_feed_forward) + 2 * source_pairs * self.attention_width
        cross = 2 * (target_tokens + source_tokens) * projection + 2 * cross_pairs * self.attention_width
        decoder = target_tokens * (4 * projection + self.decoder_feed_forward) + causal_pairs * self.attention_width
        heads = target_tokens * self.width * self.vocabulary + len(sources) * self.example_head
        return 2 * 3 * (self.encoder_layers * encoder + self.decoder_layers * (decoder + cross) + heads)

    def cost_model(self) -> CostModel:
        """What balances batches: the operations of an example, those of attention counted as the time they take."""
        projection, pair = self.width * self.attention_width, 2 * self.attention_width * _ATTENTION_TIME
        encoder, decoder = self.encoder_layers, self.decoder_layers
        return CostModel(
            source_token=encoder * (4 * projection + self.encoder_feed_forward) + decoder * 2 * projection,
            target_token=decoder * (6 * projection + self.decoder_feed_forward) + self.width * self.vocabulary,
            source_pair=encoder * pair,
            target_pair=decoder * pair / 2,
            cross_pair=decoder * pair,
            example=self.example_head,
        )
