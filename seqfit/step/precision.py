"""Which device and which autocast precision a run uses, with the reason where the choice was ours.

`has_kernels` checks whether a build of torch runs on a GPU, by its compute capability and `torch.cuda.get_arch_list()`:

    sm_80        machine code: runs on 8.0 and later of the same major number (8.6, 8.9), not on 9.0
    sm_90a       code for one chip: runs on 9.0 only
    compute_90   PTX, which the driver compiles: runs on 9.0 and all later ones
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from seqfit.errors import RecipeError
from seqfit.strategy import Strategy

_WITHOUT_BF16 = ("AVX512_CORE", "AVX512_CORE_VNNI")  # of oneDNN's levels that ONEDNN_MAX_CPU_ISA may name
Capability = tuple[int, int]
Builds = Mapping[str, Mapping[str, Iterable[int]]]  # "12.6" -> {"x86_64": {50, 60, 70, ...}}, as torch lists its own

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_EMBEDDED = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1)}  # they run only code of their own


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


def has_kernels(capability: Capability, arch_list: Iterable[str]) -> bool:
    """Whether a build with these runs on that GPU; True for a list without NVIDIA's names (a CPU's, ROCm's)."""
    found = [match for match in map(_ARCH.fullmatch, arch_list) if match]
    return not found or any(_runs(capability, match) for match in found)


def advise_build(capability: Capability, version: str, builds: Builds) -> str:
    """Which build to install, by the name of its wheel index."""
    arch = "aarch64" if platform.machine().lower() == "aarch64" else "x86_64"
    fitting = [
        "cu" + cuda.replace(".", "")
        for cuda, by_arch in builds.items()
        if any(_runs(capability, _ARCH.fullmatch(f"sm_{code}")) for code in by_arch.get(arch, ()))
    ]
    base = version.split("+")[0]
    if not fitting:
        return f"No published build of torch {base} is known to have them: build it from source"
    names = f"{fitting[0]} build" if len(fitting) == 1 else f"{', '.join(fitting[:-1])} or {fitting[-1]} build"
    return f"Install the {names} of torch {base} (pip install --force-reinstall, from the wheel index of that name)"


def _runs(capability: Capability, arch: re.Match[str] | None) -> bool:
    assert arch is not None
    kind, major, minor, suffix = arch[1], int(arch[2]), int(arch[3]), arch[4]
    if suffix == "a" or capability in _EMBEDDED or (major, minor) in _EMBEDDED:
        return capability == (major, minor)
    if kind == "compute" and not suffix:
        return capability >= (major, minor)
    return capability[0] == major and capability[1] >= minor


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
