"""What a container may use: the files of Linux' control groups come in, `Limits` go out.

A container sees all of its host's memory and cores in /proc, and is killed when it takes more memory than its group
may. Version 2 has one tree, version 1 one for each kind; a limit holds for all groups below it, so the lowest on the
way to the root counts:

    /proc/self/cgroup         0::/pod/main
    .../pod/main/memory.max   max
    .../pod/memory.max        8589934592          -> 8 GiB
    .../pod/main/cpu.max      150000 100000       -> 1.5 cores

Processes of one run on one machine are in the same group: of what is left under its limit each may take its part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_BYTES = 2**60  # version 1 writes the largest multiple of a page instead of 'max'


@dataclass(frozen=True)
class Limits:
    """None: not limited. `used_bytes` leaves out file cache that the kernel would drop."""

    memory_bytes: int | None = None
    used_bytes: int | None = None
    cores: float | None = None

    def left_bytes(self, sharers: int = 1) -> int | None:
        """What each of so many processes of the group may still take."""
        if self.memory_bytes is None:
            return None
        return max(0, self.memory_bytes - (self.used_bytes or 0)) // sharers


def read_limits(root: Path = Path("/")) -> Limits:
    """Of the groups that this process is in."""
    memory_bytes, used_bytes = _read_memory(root)
    return Limits(memory_bytes, used_bytes, _read_cores(root))


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
