"""What becomes of memory that a step frees, on a CPU with glibc: kept for the next step, or returned to the system.

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
