"""How long a prediction may take: a limit that the code which takes the time asks for itself.

In: seconds. Out: `TimeIsUp`, raised by whatever is predicting when they are over.

    with time_limit(3.0):
        trace ...            check_time() at each of some thousand operations, and at each size of micro-batch

Tracing is Python's work in this process, so asking often is exact to a few milliseconds, and what stops has stopped: a
thread could not be ended and would go on taking the interpreter from training; a process would first import torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_end: float | None = None
_seconds = 0.0


class TimeIsUp(Exception):
    """A prediction took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """What runs inside and asks is ended after so many seconds. Limits do not nest: the inner one holds."""
    global _end, _seconds
    before = _end, _seconds
    _end, _seconds = time.monotonic() + seconds, seconds
    try:
        yield
    finally:
        _end, _seconds = before


def check_time() -> None:
    """Raises where a limit is over; without a limit it does nothing."""
    if _end is not None and time.monotonic() > _end:
        raise TimeIsUp(f"it took longer than {_seconds:g} s")
