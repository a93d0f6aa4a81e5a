"""The learning-rate schedule: a factor of the peak learning rate for each step.

linear, 2 warm-up steps of 6:   step 1 2 3 4 5 6  ->  0.5 1 1 0.75 0.5 0.25 (then 0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from seqfit.recipe import schema


class Schedule:
    """Factor of the peak rate: a function of the step, and for plateau also of evaluations."""

    def __init__(self, recipe: schema.ScheduleRecipe, total_steps: int) -> None:
        self._recipe = recipe
        self._total = total_steps
        self._plateau_factor = 1.0
        self._stale = 0

    def factor(self, step: int) -> float:
        """For update number `step`, counted from 1."""
        warmup = self._recipe.warmup_steps
        if step <= warmup:
            return step / warmup
        name = self._recipe.name
        if name == "plateau":
            return self._plateau_factor
        if name == "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / max(step, 1))
        done = min(1.0, (step - 1 - warmup) / max(1, self._total - warmup))
        if name == "linear":
            return self._recipe.floor + (1 - self._recipe.floor) * (1 - done)
        if name == "cosine":
            return self._recipe.floor + (1 - self._recipe.floor) * (1 + math.cos(math.pi * done)) / 2
        return 1.0

    def read_state(self) -> dict[str, float]:
        return {"plateau_factor": self._plateau_factor, "stale": self._stale}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self._plateau_factor, self._stale = float(state["plateau_factor"]), int(state["stale"])

    def observe(self, improved: bool) -> bool:
        """After an evaluation: whether plateau lowers the rate because of it."""
        self._stale = 0 if improved else self._stale + 1
        if self._recipe.name != "plateau" or self._stale < self._recipe.patience:
            return False
        self._stale = 0
        self._plateau_factor *= self._recipe.factor
        return True
