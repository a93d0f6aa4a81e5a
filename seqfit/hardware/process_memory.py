"""How much memory a process may use, and what happens to the memory it frees.

Limits of a container. A container sees all of its host's memory and cores in /proc, and is killed when it uses more
memory than its control group may. Version 2 has one tree, version 1 one per controller; a limit holds for all groups
below it, so the lowest on the way to the root counts:

    /proc/self/cgroup         0::/pod/main
    .../pod/main/memory.max   max
    .../pod/memory.max        8589934592          -> 8 GiB
    .../pod/main/cpu.max      150000 100000       -> 1.5 cores

Processes of one run on one machine are in the same group: each may use its part of what is left under the limit.

Freed memory, on a CPU with glibc, by a strategy's `host_memory`:

    keep      glibc by default returns every block above 32 MiB and maps a new one the next time, whose pages the
              system fills with zeros one by one: the gradient of T5's embedding (65 MB) takes 28 ms to allocate that
              way, and 3 ms from kept memory. A step allocates the same blocks again and again, so keeping them costs no
              time. It costs memory: kept blocks are split and joined, and a process held 1.0 to 1.4 times as much as
              with `return` (benchmarks/planned_memory).
    return    every block above 64 KiB is returned at once, so a process holds what its plan says; a step takes a third
              to two fifths longer (a small T5 on one core).

A user who has set glibc's own MALLOC_MMAP_THRESHOLD_ keeps that setting.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_BYTES = 2**60  # version 1 writes the largest multiple of a page instead of 'max'


@dataclass(frozen=True)
class MemoryLimits:
    """None: not limited. `used_bytes` is without file cache that the kernel would drop."""

    memory_bytes: int | None = None
    used_bytes: int | None = None
    cores: float | None = None

    def left_bytes(self, sharers: int = 1) -> int | None:
        """What each of this many processes of the group may still use."""
        if self.memory_bytes is None:
            return None
        return max(0, self.memory_bytes - (self.used_bytes or 0)) // sharers


def read_limits(root: Path = Path("/")) -> MemoryLimits:
    return MemoryLimits(*_read_memory(root), _read_cores(root))


def _read_memory(root: Path) -> tuple[int | None, int | None]:
    """The tightest limit, and the usage under it."""
    tightest: tuple[int, int | None] | None = None
    for folder in _groups(root, "memory"):
        limit = _read_number(folder / "memory.max") or _read_number(folder / "memory.limit_in_bytes")
        if limit is not None and limit < _UNLIMITED_BYTES and (tightest is None or limit < tightest[0]):
            tightest = limit, _read_used(folder)
    return tightest or (None, None)


def _read_used(folder: Path) -> int | None:
    used = _read_number(folder / "memory.current")
    used = _read_number(folder / "memory.usage_in_bytes") if used is None else used
    if used is None:
        return None
    counts = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    droppable = int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
    return max(0, used - droppable)


def _read_cores(root: Path) -> float | None:
    found = []
    for folder in _groups(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
        if not quota:
            quota = _read(folder / "cpu.cfs_quota_us").strip()
            period = _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():  # 'max' and -1 mean no limit
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's groups, from its own up to the root of the tree."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        folder = top / path.lstrip("/")
        # Inside a container the path may be the host's, with only the root of the tree mounted.
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _read_number(file: Path) -> int | None:
    text = _read(file).strip()
    return int(text) if text.isdecimal() else None


def _read(file: Path) -> str:
    """'' where the file is missing or not readable: another version, another system."""
    try:
        return file.read_text("utf-8")
    except OSError:
        return ""


M_TRIM_THRESHOLD = -1  # of <malloc.h>
M_MMAP_THRESHOLD = -3
KEPT_AT_MOST = 1.5  # times what is allocated; the highest measured was 1.44
_LARGEST = 2**31 - 1  # the interface takes an int
_RETURNED_FROM_BYTES = 64 * 2**10
_TRIM_BYTES = 128 * 2**10  # glibc's default


def set_malloc_policy(setting: str | None) -> str | None:
    """Sets glibc; a message where it can't be set, or where memory is returned, because that takes time."""
    if setting != "return":
        is_set = _set_glibc(2**30, _LARGEST)
        return f"freed memory is not kept: {_explain_why_not()}" if setting == "keep" and not is_set else None
    if _set_glibc(_RETURNED_FROM_BYTES, _TRIM_BYTES):  # memory kept before is covered as well
        return "freed memory is returned to the system at once: least memory, more time per step"
    return f"freed memory is not returned: {_explain_why_not()}"


def should_return(peak_bytes: int, usable_bytes: int) -> bool:
    """Whether a step fits in memory, but might not if freed memory is kept."""
    return peak_bytes * KEPT_AT_MOST > usable_bytes


def _set_glibc(mapped_from_bytes: int, trimmed_from_bytes: int) -> bool:
    """Whether it was set: only glibc has these settings, and the user's own win."""
    if _explain_why_not() is not None:
        return False
    libc = ctypes.CDLL(None)
    mapped = bool(libc.mallopt(M_MMAP_THRESHOLD, mapped_from_bytes))
    return mapped and bool(libc.mallopt(M_TRIM_THRESHOLD, trimmed_from_bytes))


def _explain_why_not() -> str | None:
    if platform.libc_ver()[0] != "glibc":
        return "only glibc has this setting"
    return "MALLOC_MMAP_THRESHOLD_ is set" if "MALLOC_MMAP_THRESHOLD_" in os.environ else None
