"""The only place that starts torch's profiler: a process has one, and a second one inside it crashes.

In: its owner's name, and torch's own settings. Out: the profiler, or `ProfilerBusy` with the name of the other owner.

    capture of `seqfit profile`      wait   warm-up   record   record
    a peak measurement inside it            here, torch 2.13 reports that no profiler is enabled, and starting one is a
                                            segmentation fault two steps later, when the outer one stops

So torch's report is not enough. Our own profilers are tracked here, and one that the user's program has around
`seqfit.train(...)` is found among Python's objects, which takes 65 ms; this happens only before a profiler starts.
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
    """torch's profiler is in use."""


@contextmanager
def torch_profiler(owner: str, **settings: Any) -> Iterator[profile]:
    """torch.profiler.profile(**settings), unless one is in use; `owner` is named in the error of a second one."""
    global _owner
    with _lock:
        holder = find_profiler_owner()
        if holder is not None:
            raise ProfilerBusy(f"{owner} needs torch's profiler, which {holder} uses: a process has only one")
        _owner = owner
    try:
        with profile(**settings) as profiler:
            yield profiler
    finally:
        _owner = None


def find_profiler_owner() -> str | None:
    """Who uses torch's profiler, also where it is only about to record; None where it is free."""
    if _owner is not None:
        return _owner
    if torch._C._autograd._profiler_enabled() or any(map(_is_active, gc.get_referrers(profile))):
        return "the program that called seqfit"
    return None


def _is_active(found: object) -> bool:
    """A profiler with a schedule, anywhere between its start and its stop."""
    return isinstance(found, profile) and found.step_rec_fn is not None
