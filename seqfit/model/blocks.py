"""The blocks of a model: what transformers repeats, and so what is recomputed, compiled or given adapters.

    T5     encoder.block.0, ..., decoder.block.0, ...
    BART   model.encoder.layers.0, ..., model.decoder.layers.0, ...
    BERT   bert.encoder.layer.0, ...

transformers marks them with one class, so no list of names is needed here.
"""

from __future__ import annotations

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from seqfit.errors import ModelError, complain


def find_blocks(model: nn.Module, purpose: str) -> dict[str, nn.Module]:
    """Name -> block, in the order of the model; `purpose` is what the user asked for, for the message."""
    blocks = {name: part for name, part in model.named_modules() if isinstance(part, GradientCheckpointingLayer)}
    if not blocks:
        raise ModelError(
            complain(
                f"{purpose} is asked for with a {type(model).__name__}",
                "it works on the blocks that transformers marks, and this model has none",
                "Leave it out, or choose a T5, BART or BERT-type model",
            )
        )
    return blocks
