"""Whether a build of torch has kernels for a GPU, and which published build has. Free of torch.

In: a GPU's compute capability and what `torch.cuda.get_arch_list()` says. Out: yes or no, and a sentence what to do.

    sm_80        machine code: runs on 8.0 and later of the same major number (8.6, 8.9), not on 9.0
    sm_90a       code for one chip: runs on 9.0 only
    compute_90   PTX, which the driver compiles: runs on 9.0 and all later ones
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping

Capability = tuple[int, int]
Builds = Mapping[str, Mapping[str, Iterable[int]]]  # "12.6" -> {"x86_64": {50, 60, 70, ...}}, as torch lists its own

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_EMBEDDED = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1)}  # they run none but code of their own


def has_kernels(capability: Capability, arch_list: Iterable[str]) -> bool:
    """Whether a build with these runs on that GPU. A list without NVIDIA's names (a CPU's, ROCm's) can't tell: yes."""
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
