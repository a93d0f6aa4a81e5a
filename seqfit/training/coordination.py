"""What the ranks of a run agree on once per step, in one small all-reduce between their hosts.

    rank 0   fine               no signal   a snapshot is due by its clock
    rank 1   3,072 tokens fit   SIGTERM
    agreed   3,072 tokens       SIGTERM     a snapshot is due

A single process looks at its own state whenever it needs to know.
"""

from __future__ import annotations

from collections.abc import Callable

from seqfit.parallel import World
from seqfit.training.stopping import Stopping

NO_OOM = 2**62  # of tokens: no rank is out of memory


class PeerOutOfMemory(MemoryError):
    """Another rank is out of memory in this step: this rank gives it up, too."""


class Coordination:
    """Collects what this rank has to report, and knows what all ranks have reported."""

    def __init__(self, world: World, stopping: Stopping | None = None) -> None:
        self.world = world
        self.stopping = stopping or Stopping(single_process=world.size == 1)
        self.has_agreed = False  # in this attempt at a step: the others count on this rank
        self.lowest_tokens = NO_OOM
        self._agreed_due = False
        self._is_due: Callable[[], bool] = bool

    def set_snapshot_clock(self, is_due: Callable[[], bool]) -> None:
        """`is_due`: whether a snapshot is due by the clock; among several ranks the first one's clock decides."""
        self._is_due = is_due

    @property
    def snapshot_is_due(self) -> bool:
        """By the clock, the same on all ranks."""
        return self._is_due() if self.world.size == 1 else self._agreed_due

    def begin_attempt(self) -> None:
        """Before each attempt at a step."""
        self.has_agreed, self.lowest_tokens = False, NO_OOM

    def check_all_ranks(self) -> None:
        """Before the first collective of a step: raises where a rank is out of memory."""
        self.has_agreed = True
        self.lowest_tokens = self.all_reduce()
        if self.lowest_tokens != NO_OOM:
            raise PeerOutOfMemory

    def all_reduce(self, tokens: int = NO_OOM) -> int:
        """The smallest micro-batch that any rank needs after OOM, or NO_OOM. A collective: all ranks call it."""
        is_due = self.world.is_first and self._is_due()
        lowest, stop, due = self.world.all_reduce_min([tokens, self.stopping.offer(), -int(is_due)])
        self.stopping.settle(stop)
        self._agreed_due = due < 0
        return lowest
