"""Which device and which autocast precision a run uses, with the reason where the choice was ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from seqfit.errors import RecipeError
from seqfit.hardware import advise_build, has_kernels
from seqfit.strategy import Strategy

_WITHOUT_BF16 = ("AVX512_CORE", "AVX512_CORE_VNNI")  # of oneDNN's levels that ONEDNN_MAX_CPU_ISA may name


@dataclass(frozen=True)
class Precision:
    """Autocast precision on a device; fp32 means no autocast."""

    name: str
    device: torch.device
    reason: str

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """A context for the forward; a new one each time, because it can't be entered twice."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        dtype = torch.bfloat16 if self.name == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype)

    @staticmethod
    def resolve_auto(*, has_bf16: bool, allow: Sequence[str]) -> str:
        """What `auto` means on a device, which may be another machine's."""
        return "bf16" if has_bf16 and "bf16" in allow else "fp32"

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
            "strategy.device is 'cuda'",
            f"this machine's torch {torch.__version__} sees no GPU",
            "Set strategy.device=cpu, or run `seqfit doctor` to see what is missing",
        )
    if strategy.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", torch.cuda.current_device())
    missing = find_missing_kernels(device)
    if missing is not None:
        card, advice = missing
        raise RecipeError(
            f"this machine's GPU is {card}",
            f"torch {torch.__version__} has no kernels for it, only {', '.join(torch.cuda.get_arch_list())}",
            f"{advice}; or set strategy.device=cpu",
        )
    return device


def find_missing_kernels(device: torch.device) -> tuple[str, str] | None:
    """The GPU and what to do where this build of torch has no kernels for it: every one would fail."""
    capability = torch.cuda.get_device_capability(device)
    if has_kernels(capability, torch.cuda.get_arch_list()):
        return None
    builds = getattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC", {})  # torch's own list, not documented
    name = f"{torch.cuda.get_device_name(device)} (compute capability {capability[0]}.{capability[1]})"
    return name, advise_build(capability, torch.__version__, builds)


def find_cpu_bf16() -> Literal["native", "emulated", "none"]:
    """How this CPU computes in bf16: with bf16 instructions, with AVX-512's for fp32, or without oneDNN."""
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "none"
    is_limited = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _WITHOUT_BF16
    lacks_bf16 = not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return "emulated" if torch.cpu._is_avx512_supported() and (lacks_bf16 or is_limited) else "native"


def explain_unused_gpu(strategy: Strategy, device: torch.device) -> str | None:
    """A warning for Macs where `auto` means the CPU; None elsewhere, and where strategy.device=cpu is set."""
    if strategy.device != "auto" or device.type != "cpu" or not torch.backends.mps.is_available():
        return None
    return "the CPU: seqfit does not support this Mac's GPU (mps); strategy.device=cpu removes this message"


def choose_precision(strategy: Strategy, device: torch.device, allow: list[str]) -> Precision:
    """The strategy's precision, or for auto bf16 where the GPU has it in hardware and the recipe allows it."""
    on_gpu = device.type == "cuda"
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    if strategy.precision == "auto":
        if Precision.resolve_auto(has_bf16=has_bf16, allow=allow) == "bf16":
            return Precision("bf16", device, "the GPU has bf16 and the recipe allows it")
        if on_gpu and not has_bf16:
            return Precision("fp32", device, "the GPU has no bf16, and fp16 overflows in T5's feed-forward layers")
        return Precision("fp32", device, "the default on a CPU" if not on_gpu else "the recipe does not allow bf16")
    if strategy.precision == "bf16" and on_gpu and not has_bf16:
        raise RecipeError(
            f"strategy.precision is 'bf16' on {torch.cuda.get_device_name(device)}",
            "this GPU has no bf16 in hardware",
            "Set strategy.precision=fp32, or fp16 with 'allow=[fp16]'",
        )
    if strategy.precision == "fp16" and not on_gpu:
        raise RecipeError(
            "strategy.precision is 'fp16' on a CPU",
            "CPUs compute fp16 more slowly than fp32 and gain nothing from it",
            "Set strategy.precision=fp32 or bf16",
        )
    if strategy.precision == "bf16" and not on_gpu and find_cpu_bf16() != "native":
        reason = "as the strategy states; this CPU has no bf16 instructions, so fp32 is likely to be faster"
        return Precision("bf16", device, reason)
    return Precision(strategy.precision, device, "as the strategy states")
