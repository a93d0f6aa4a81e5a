"""How much memory a process may use, and what becomes of what it frees.

What a container may use: the files of Linux' control groups come in, `Limits` go out.

A container sees all of its host's memory and cores in /proc, and is killed when it takes more memory than its group
may. Version 2 has one tree, version 1 one for each kind; a limit holds for all groups below it, so the lowest on the
way to the root counts:

    /proc/self/cgroup         0::/pod/main
    .../pod/main/memory.max   max
    .../pod/memory.max        8589934592          -> 8 GiB
    .../pod/main/cpu.max      150000 100000       -> 1.5 cores

Processes of one run on one machine are in the same group: of what is left under its limit each may take its part.

What becomes of memory that a step frees, on a CPU with glibc: kept for the next step, or returned to the system.

In: a strategy's `host_memory`. Out: glibc is told, and a sentence for the run's events where that is worth one.

    keep      glibc by itself hands every block above 32 MiB back and takes a new one the next time, whose pages the
              system fills with zeros one by one: the gradient of T5's embedding (65 MB) takes 28 ms to allocate that
              way, and 3 ms from kept memory. A step allocates the same blocks again and again, so keeping them costs no
              time. It costs memory: kept blocks are cut and joined, and a process held 1.0 to 1.4 times as much as with
              `return` (benchmarks/planned_memory).
    return    every block above 64 KiB goes back at once, so a process holds what its plan says; a step takes a third to
              two fifths more time (a small T5 on one core).

Who sets glibc's own MALLOC_MMAP_THRESHOLD_ has decided for himself.
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
    """None: not limited. `used_bytes` leaves out file cache that the kernel would drop."""

    memory_bytes: int | None = None
    used_bytes: int | None = None
    cores: float | None = None

    def left_bytes(self, sharers: int = 1) -> int | None:
        """What each of so many processes of the group may still take."""
        if self.memory_bytes is None:
            return None
        return max(0, self.memory_bytes - (self.used_bytes or 0)) // sharers


def read_limits(root: Path = Path("/")) -> MemoryLimits:
    """Of the groups that this process is in."""
    memory_bytes, used_bytes = _read_memory(root)
    return MemoryLimits(memory_bytes, used_bytes, _read_cores(root))


def _read_memory(root: Path) -> tuple[int | None, int | None]:
    """The tightest limit, and what is used under it."""
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
        if quota.isdecimal() and period.isdecimal():  # 'max' and -1 are no limit
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process' groups, from its own up to the root of the tree."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        folder = top / path.lstrip("/")
        # Inside a container the path may be the host's, and only the root of the tree is mounted.
        while folder != top:
            yield folder
            folder = folder.parent
        yield top


def _read_number(file: Path) -> int | None:
    text = _read(file).strip()
    return int(text) if text.isdecimal() else None


def _read(file: Path) -> str:
    """'' where there is no such file: another version, another system, no permission."""
    try:
        return file.read_text("utf-8")
    except OSError:
        return ""


M_TRIM_THRESHOLD = -1  # of <malloc.h>
M_MMAP_THRESHOLD = -3
KEPT_AT_MOST = 1.5  # times what is allocated: 1.44 is the most that was seen
_LARGEST = 2**31 - 1  # what the interface, an int, can say
_RETURNED_FROM_BYTES = 64 * 2**10
_TRIM_BYTES = 128 * 2**10  # glibc's own choice


def arrange_freed_memory(setting: str | None) -> str | None:
    """Tells glibc. What was asked for and can't be had is said, and so is that memory is returned: it takes time."""
    if setting != "return":
        arranged = keep_freed_memory()
        return f"freed memory is not kept: {_explain_why_not()}" if setting == "keep" and not arranged else None
    if return_freed_memory():
        return "freed memory goes back to the system at once: the least memory, and more time a step"
    return f"freed memory is not returned: {_explain_why_not()}"


def should_return(peak_bytes: int, usable_bytes: int) -> bool:
    """Whether a step's memory fits, but might not if what it frees is kept."""
    return peak_bytes * KEPT_AT_MOST > usable_bytes


def keep_freed_memory() -> bool:
    """Whether it was arranged: only glibc has these two settings, and the user's own go first."""
    return _tell_glibc(2**30, _LARGEST)


def return_freed_memory() -> bool:
    """Whether it was arranged, also where memory was kept before."""
    return _tell_glibc(_RETURNED_FROM_BYTES, _TRIM_BYTES)


def _tell_glibc(mapped_from_bytes: int, trimmed_from_bytes: int) -> bool:
    if _explain_why_not() is not None:
        return False
    libc = ctypes.CDLL(None)
    mapped = bool(libc.mallopt(M_MMAP_THRESHOLD, mapped_from_bytes))
    return mapped and bool(libc.mallopt(M_TRIM_THRESHOLD, trimmed_from_bytes))


def _explain_why_not() -> str | None:
    if platform.libc_ver()[0] != "glibc":
        return "only glibc can be told"
    return "MALLOC_MMAP_THRESHOLD_ is set" if "MALLOC_MMAP_THRESHOLD_" in os.environ else None
