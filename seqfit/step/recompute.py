"""Recompute: blocks forget their activations after the forward and compute them again in the backward.

In: a model and which blocks. Out: the same model, whose blocks keep their inputs only, and how many do.

    activations kept for 4 blocks     none: a a a a     blocks: . . . .     alternate: . a . a

The flags are those of transformers' blocks, set one by one. `model.gradient_checkpointing_enable` would also make the
embeddings' output and T5's empty cross-attention bias ask for gradients, which only torch's older kind of recompute
needs: a backward through a frozen encoder, and one more [H, T, S] gradient in each decoder. torch restores the random
state, so dropout drops the same values again. In `eval()` nothing is recomputed and `generate` keeps its cache.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import nn
from torch.utils.checkpoint import checkpoint

from seqfit.model.blocks import find_blocks

Recompute = Literal["none", "blocks", "alternate"]


def enable_recompute(model: nn.Module, which: Recompute) -> int:
    """How many blocks are recomputed: all of them, or every other one from the first on."""
    if which == "none":
        return 0
    blocks = list(find_blocks(model, "strategy.recompute").values())
    chosen = blocks if which == "blocks" else blocks[::2]
    for block in chosen:
        # setattr, for a module's attributes are tensors and modules to the type checker
        setattr(block, "_gradient_checkpointing_func", partial(checkpoint, use_reentrant=False))  # noqa: B010
        setattr(block, "gradient_checkpointing", True)  # noqa: B010
    return len(chosen)
