"""torch's own lines on standard error that say nothing to a user: kept out, unless the user has set a level.

Two libraries write them around torch's profiler, which watches a few steps of a run: Kineto greets ("USDT: ...
profiler_start") and reads KINETO_LOG_LEVEL when it is first used; c10 warns about blocks from before the profile and
reads TORCH_CPP_LOG_LEVEL when torch is imported, so in a program that has imported torch already its level is set.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KINETO, _C10 = "KINETO_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL"
_ERROR = 2  # of c10's levels: info, warning, error, fatal


def quiet_torch() -> None:
    """For a process of ours, before it imports torch; processes that it starts are quiet as well."""
    os.environ.setdefault(_KINETO, "99")
    os.environ.setdefault(_C10, "ERROR")


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """No lines of torch's profiler while the block runs, also in a program that imported torch before seqfit."""
    os.environ.setdefault(_KINETO, "99")
    level = _find_level() if os.environ.get(_C10, "ERROR") == "ERROR" else None  # another one is the user's
    before = None if level is None else level.value
    try:
        if level is not None:
            level.value = _ERROR
        yield
    finally:
        if level is not None and before is not None:
            level.value = before


def _find_level() -> ctypes.c_int | None:
    """c10's level in memory; None where this build has no such variable: then its warnings are seen."""
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    names = ("libc10.so", "libc10.dylib", "c10.dll")
    library = next((folder / name for name in names if (folder / name).is_file()), None)
    try:
        return None if library is None else ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return None
