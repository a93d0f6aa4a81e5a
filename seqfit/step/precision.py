"""Which device and which autocast precision a run uses, with the reason where the choice was ours."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqfit.errors import RecipeError, complain
from seqfit.strategy.schema import Strategy


@dataclass(frozen=True)
class Precision:
    """Autocast precision on a device; fp32 means no autocast."""

    name: str
    device: torch.device
    reason: str

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """A context for the forward; a new one each time, for they can't be entered twice."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        dtype = torch.bfloat16 if self.name == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    @property
    def needs_scaler(self) -> bool:
        """fp16 gradients underflow without one."""
        return self.name == "fp16"


def choose_device(strategy: Strategy) -> torch.device:
    """The strategy's device; auto takes a GPU if torch sees one."""
    if strategy.device == "cuda" and not torch.cuda.is_available():
        raise RecipeError(
            complain(
                "strategy.device is 'cuda'",
                f"this machine's torch {torch.__version__} sees no GPU",
                "Set strategy.device=cpu, or run `seqfit doctor` to see what is missing",
            )
        )
    if strategy.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def choose_auto(*, has_bf16: bool, allow: Sequence[str]) -> str:
    """What `auto` means on a device, which need not be there."""
    return "bf16" if has_bf16 and "bf16" in allow else "fp32"


def choose_precision(strategy: Strategy, device: torch.device, allow: list[str]) -> Precision:
    """The strategy's precision, or for auto bf16 where the GPU has it in hardware and the recipe allows it."""
    on_gpu = device.type == "cuda"
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    if strategy.precision == "auto":
        if choose_auto(has_bf16=has_bf16, allow=allow) == "bf16":
            return Precision("bf16", device, "the GPU has bf16 and the recipe allows it")
        if on_gpu and not has_bf16:
            return Precision("fp32", device, "the GPU has no bf16, and fp16 overflows in T5's feed-forward layers")
        return Precision("fp32", device, "the reference on a CPU" if not on_gpu else "the recipe does not allow bf16")
    if strategy.precision == "bf16" and on_gpu and not has_bf16:
        raise RecipeError(
            complain(
                f"strategy.precision is 'bf16' on {torch.cuda.get_device_name(device)}",
                "this card has no bf16 in hardware",
                "Set strategy.precision=fp32, or fp16 with 'allow=[fp16]'",
            )
        )
    if strategy.precision == "fp16" and not on_gpu:
        raise RecipeError(
            complain(
                "strategy.precision is 'fp16' on a CPU",
                "CPUs compute fp16 more slowly than fp32 and gain nothing from it",
                "Set strategy.precision=fp32 or bf16",
            )
        )
    return Precision(strategy.precision, device, "the strategy says so")
