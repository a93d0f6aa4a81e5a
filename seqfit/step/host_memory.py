"""Keeps memory that a step frees for the next one, on a CPU with glibc.

glibc hands every block above 32 MiB back to the system and takes a new one the next time, whose pages the system fills
with zeros one by one: the gradient of T5's embedding (65 MB) takes 28 ms to allocate that way, and 3 ms from kept
memory. A training step allocates the same blocks again and again, so keeping them costs no time.

It costs memory: kept blocks are cut and joined, and a process held 1.0 to 1.4 times as much as without
(benchmarks/planned_memory). Who sets glibc's own MALLOC_MMAP_THRESHOLD_ has decided otherwise: with 65536 a step takes
what its plan says, and a third to two fifths more time (a small T5 on one core).
"""

from __future__ import annotations

import ctypes
import os
import platform

M_TRIM_THRESHOLD = -1  # of <malloc.h>
M_MMAP_THRESHOLD = -3
_LARGEST = 2**31 - 1  # what the interface, an int, can say


def keep_freed_memory() -> bool:
    """Whether it was arranged: only glibc has these two settings, and the user's own go first."""
    if platform.libc_ver()[0] != "glibc" or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(M_MMAP_THRESHOLD, 2**30)) and bool(libc.mallopt(M_TRIM_THRESHOLD, _LARGEST))
