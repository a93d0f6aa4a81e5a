"""The one place that starts torch's profiler: a process has one, and a second inside the first ends in a crash.

In: who wants it, and torch's own settings. Out: the profiler, or `ProfilerBusy` with the name of who has it.

    capture of `seqfit profile`   wait   warm-up   record   record
    a peak watch inside it               here, torch 2.13 says that no profiler is enabled, and starting one is a
                                         segmentation fault two steps later, when the outer one stops

So torch's own answer is not enough. Our profilers are counted here, and a profiler that the user's program has around
`seqfit.train(...)` is found among Python's objects, which takes 65 ms; it happens only before a profiler starts.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import profile

_lock = threading.Lock()
_owner: str | None = None


class ProfilerBusy(Exception):
    """Somebody else has torch's profiler."""


@contextmanager
def torch_profiler(owner: str, **settings: Any) -> Iterator[profile]:
    """torch.profiler.profile(**settings), if nobody else has one; `owner` is named to whoever asks meanwhile."""
    global _owner
    with _lock:
        holder = find_profiler_owner()
        if holder is not None:
            raise ProfilerBusy(f"{owner} needs torch's profiler, which {holder} has: a process has only one")
        _owner = owner
    try:
        with profile(**settings) as profiler:
            yield profiler
    finally:
        _owner = None


def find_profiler_owner() -> str | None:
    """Who has torch's profiler now, also where it is only about to record; None where it is free."""
    if _owner is not None:
        return _owner
    if torch._C._autograd._profiler_enabled() or any(map(_is_active, gc.get_referrers(profile))):
        return "the program that called seqfit"
    return None


def _is_active(found: object) -> bool:
    """A profiler with a schedule, between its start and its stop, whatever it is at."""
    return isinstance(found, profile) and found.step_rec_fn is not None
