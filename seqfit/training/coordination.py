"""What the processes of a run tell each other once a step, in one small exchange between their hosts.

    rank 0   fine               no signal   a snapshot is due by its clock
    rank 1   3,072 tokens fit   SIGTERM
    agreed   3,072 tokens       SIGTERM     a snapshot is due

One process alone asks itself, at the moment when it needs to know.
"""

from __future__ import annotations

from collections.abc import Callable

from seqfit.parallel.world import World
from seqfit.training.stopping import Stopping

NO_OOM = 2**62  # of tokens: no process has failed


class Coordination:
    """Collects what this process has to say, and knows what all have said."""

    def __init__(self, world: World, stopping: Stopping) -> None:
        self.world = world
        self.stopping = stopping
        self._agreed_due = False
        self._is_due: Callable[[], bool] = bool

    def ask_clock(self, is_due: Callable[[], bool]) -> None:
        """Whom to ask whether a snapshot is due by the clock; of several processes the first one's counts."""
        self._is_due = is_due

    @property
    def snapshot_is_due(self) -> bool:
        """By the clock, for all."""
        return self._is_due() if self.world.size == 1 else self._agreed_due

    def exchange(self, tokens: int = NO_OOM) -> int:
        """Whether all processes have come so far: the fewest tokens that one of them can take, or FINE."""
        is_due = self.world.is_first and self._is_due()
        lowest, stop, due = self.world.all_reduce_min([tokens, self.stopping.offer(), -int(is_due)])
        self.stopping.settle(stop)
        self._agreed_due = due < 0
        return lowest
