"""What a run can do without: predictions, samples, trackers, its page. A failure there is an event, and no run's end.

In: what is attempted, and where events go. Out: the event with the cause, and the run goes on.

    with optional_work("telemetry", "nothing is sampled", writer.event):
        start_the_sampler()                                # PermissionError -> event, 'nothing is sampled: ...'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seqfit.errors import describe_error


@contextmanager
def optional_work(kind: str, consequence: str, tell: Callable[[str, str], None]) -> Iterator[None]:
    """Runs what is inside; any exception, a MemoryError, too, becomes an event that names its cause."""
    try:
        yield
    except Exception as error:  # of whatever kind: the run does not need what failed
        tell(kind, f"{consequence}: {describe_error(error)}")
