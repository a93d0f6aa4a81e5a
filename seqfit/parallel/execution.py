"""How blocks run: gradient checkpointing (activation recomputation), torch.compile, and what fp16 leaves in fp32.

In: a model. Out: the same model with its blocks or layers changed, and how many were.

**Gradient checkpointing.** Activations are dropped after the forward pass and recomputed in the backward pass; only a
block's inputs are kept.

    activations kept for 4 blocks     none: a a a a     blocks: . . . .     alternate: . a . a

The flags are those of transformers' blocks, set one by one. `model.gradient_checkpointing_enable` would also set
requires_grad on the embeddings' output and T5's empty cross-attention bias, which only torch's reentrant checkpointing
needs: it costs a backward through a frozen encoder, and one more [H, T, S] gradient in each decoder. torch restores the
RNG state, so dropout drops the same values again. In `eval()` nothing is recomputed and `generate` keeps its cache.

**torch.compile.** Blocks run compiled in `train()` and eagerly in `eval()`, because the cache of generation grows by a
token at each call. Blocks of one kind share their machine code, so T5's 24 blocks are compiled four times (encoder and
decoder, with and without the position table), and shapes are symbolic: a new length compiles nothing. What does compile
again: a size of 1, and a batch without padding, whose mask transformers leaves out. Attention of packed rows runs
segment by segment in Python, so each kind is compiled in parts, before and after it (19 in all for T5).

**fp16 for T5 v1.1, mT5 and UMT5.** The last product of their feed-forward layers, `wo`, sums to more than 65,504,
fp16's largest number, and the loss would be NaN. So it is computed in fp32. `Family.fp32_in_fp16` finds the layers.

    gate(x W0) * (x W1)  fp16   ->   fp32   ->   wo, fp32   ->   added to the residual, which autocast keeps in fp32
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from seqfit.errors import RecipeError
from seqfit.model import family_of, find_blocks

Recompute = Literal["none", "blocks", "alternate"]


def enable_recompute(model: nn.Module, which: Recompute) -> int:
    """The number of recomputed blocks: all, or every other one starting with the first."""
    if which == "none":
        return 0
    blocks = list(find_blocks(model, "strategy.recompute").values())
    chosen = blocks if which == "blocks" else blocks[::2]
    for block in chosen:
        # setattr, because to the type checker a module's attributes are tensors and modules
        setattr(block, "_gradient_checkpointing_func", partial(checkpoint, use_reentrant=False))  # noqa: B010
        setattr(block, "gradient_checkpointing", True)  # noqa: B010
    return len(chosen)


# torch's default is 8, beyond which it runs eagerly with only a log line. T5 has 4 kinds of blocks, each with and
# without a mask, and with sizes of 1: a single batch of one example reaches 8.
RECOMPILE_LIMIT = 64


def compile_blocks(model: nn.Module, device: torch.device, *, backend: str = "inductor") -> int:
    """The number of compiled blocks; compilation itself happens in the first steps."""
    if backend == "inductor":
        check_compiler(device)
    blocks = find_blocks(model, "strategy.compile")
    for block in blocks.values():
        _compile_training(block, backend)
    return len(blocks)


def check_compiler(device: torch.device) -> None:
    """torch.compile generates C++ for a CPU and Triton for a GPU, and needs their compilers."""
    compiler = os.environ.get("CXX", "g++")
    missing = None
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        missing = "the package triton"
    elif shutil.which(compiler) is None:
        missing = f"the C++ compiler '{compiler}'"
    if missing is not None:
        raise RecipeError(
            f"strategy.compile is on, and this machine lacks {missing}",
            f"torch.compile can't generate code for a {device.type} device without it",
            "Install it (for C++: apt install g++, or set CXX to another compiler), or set strategy.compile=false",
        )


def _compile_training(block: nn.Module, backend: str) -> None:
    eager = block.forward
    settings: dict[str, Any] = {"dynamic": True, "backend": backend, "recompile_limit": RECOMPILE_LIMIT}
    compiled = torch.compile(eager, **settings)  # torch's type hints lack the limit

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (compiled if block.training else eager)(*args, **kwargs)

    block.forward = forward


def keep_outputs_in_fp32(model: PreTrainedModel, device: torch.device) -> str | None:
    """Replace the forward of these layers; describes what was done, None where the model has none."""
    layers = family_of(model).fp32_in_fp16(model)
    for layer in layers:
        layer.forward = _in_fp32(layer, device.type)
    return f"fp16, but for the outputs of {len(layers)} feed-forward layers, which overflow in it" if layers else None


def _in_fp32(output: nn.Module, device_type: str) -> Callable[[torch.Tensor], torch.Tensor]:
    usual = output.forward

    def forward(states: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device_type, enabled=False):
            result: torch.Tensor = usual(states.float())
            return result

    return forward
