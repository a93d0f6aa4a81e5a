"""How blocks run: gradient checkpointing (activation recomputation) and torch.compile.

Recompute: blocks forget their activations after the forward and compute them again in the backward.

In: a model and which blocks. Out: the same model, whose blocks keep their inputs only, and how many do.

    activations kept for 4 blocks     none: a a a a     blocks: . . . .     alternate: . a . a

The flags are those of transformers' blocks, set one by one. `model.gradient_checkpointing_enable` would also make the
embeddings' output and T5's empty cross-attention bias ask for gradients, which only torch's older kind of recompute
needs: a backward through a frozen encoder, and one more [H, T, S] gradient in each decoder. torch restores the random
state, so dropout drops the same values again. In `eval()` nothing is recomputed and `generate` keeps its cache.

torch.compile of a model's blocks, one by one, for training.

In: a model. Out: the same model, whose blocks run compiled in `train()` and as they were in `eval()`.

Blocks of one kind share their machine code, so T5's 24 blocks are compiled four times (encoder and decoder, with and
without the position table), not 24 times, and shapes are symbols: a new length compiles nothing. What does compile
again: a size of 1, and a batch without padding, whose mask transformers leaves out. In packed rows attention goes by
segments and is left to Python, so each kind is compiled in parts, before and behind it (19 in all for T5). Generation
is left alone, for its cache grows by a token at each call.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from seqfit.errors import RecipeError
from seqfit.model.trainable import find_blocks

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


# torch's own is 8, beyond which it goes on eagerly with no more than a log line. T5 has 4 kinds of blocks, each with
# or without a mask, and with sizes of 1: 8 is reached by a stray batch of one example.
RECOMPILE_LIMIT = 64


def compile_blocks(model: nn.Module, device: torch.device, *, backend: str = "inductor") -> int:
    """How many blocks are compiled; the compiling itself happens at the first steps."""
    if backend == "inductor":
        check_compiler(device)
    blocks = find_blocks(model, "strategy.compile")
    for block in blocks.values():
        _compile_training(block, backend)
    return len(blocks)


def check_compiler(device: torch.device) -> None:
    """torch.compile writes C++ for a CPU and Triton for a GPU, and needs what turns them into machine code."""
    compiler = os.environ.get("CXX", "g++")
    missing = None
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        missing = "the package triton"
    elif shutil.which(compiler) is None:
        missing = f"the C++ compiler '{compiler}'"
    if missing is not None:
        raise RecipeError(
            f"strategy.compile is on, and this machine lacks {missing}",
            f"torch.compile can't make code for a {device.type} device without it",
            "Install it (for C++: apt install g++, or set CXX to another compiler), or set strategy.compile=false",
        )


def _compile_training(block: nn.Module, backend: str) -> None:
    eager = block.forward
    settings: dict[str, Any] = {"dynamic": True, "backend": backend, "recompile_limit": RECOMPILE_LIMIT}
    compiled = torch.compile(eager, **settings)  # torch's type hints lack the limit

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (compiled if block.training else eager)(*args, **kwargs)

    block.forward = forward
