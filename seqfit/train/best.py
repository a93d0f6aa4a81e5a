"""Which evaluation of a run was the best, and for how long nothing has beaten it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqfit.metrics import higher_is_better


@dataclass
class Best:
    """The best score so far, and for how many evaluations nothing has beaten it."""

    name: str
    min_delta: float
    value: float | None = None
    mark: float | None = None  # what an improvement has to beat by min_delta
    loss: float = math.inf
    stale: int = 0

    def start_over(self, name: str) -> None:
        """From now on another score decides."""
        self.name, self.value, self.mark, self.loss, self.stale = name, None, None, math.inf, 0

    def judge(self, value: float | None, loss: float | None) -> tuple[bool, bool]:
        """Whether to keep this model, and whether it is an improvement. Of equal scores the lower loss is kept."""
        loss = math.inf if loss is None else loss
        if value is None or self.value is None or self.mark is None:
            improved = kept = self.value is None
        else:
            sign = 1 if higher_is_better(self.name) else -1
            improved = sign * (value - self.mark) > self.min_delta
            kept = sign * (value - self.value) > 0 or (value == self.value and loss < self.loss)
        if kept:
            self.value, self.loss = value, loss
        if improved:
            self.mark, self.stale = value, 0
        else:
            self.stale += 1
        return kept, improved
