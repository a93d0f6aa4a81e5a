"""What the evaluations of a training have to do: their rows, and how often.

In: a recipe and its data, or assumed lengths. Out: an `EvaluationWork`; None where no split would be evaluated.

    100 steps per epoch, 250 steps in all                 after 100, 200 and 250 steps: 3 evaluations
    eval.every_steps=50, eval.at_start=true               before the first, after 50, 100, ... 250: 6
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seqfit.data import PreparedData
from seqfit.evaluation import spread_over_rows
from seqfit.generation import Generator
from seqfit.planning.shape import Workload
from seqfit.recipe import Recipe

ASSUMED_ROWS, ASSUMED_SHARE = 1000, 0.1  # of a validation split, where there are no data: at most, of the rows
_Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class EvaluationWork:
    """What an evaluation does, and how often a training has one."""

    source_lengths: _Lengths  # of the rows of one evaluation
    target_lengths: _Lengths  # zeros for a classifier
    times: int
    batch_tokens: int
    beams: int
    max_new_tokens: int

    @property
    def rows(self) -> int:
        return len(self.source_lengths)


def find_evaluation_work(
    recipe: Recipe, data: PreparedData | None, workload: Workload, limit: int | None, steps_per_epoch: float
) -> EvaluationWork | None:
    """`limit`: the longest text that the model has positions for."""
    if data is None:
        rows = max(1, min(ASSUMED_ROWS, round(ASSUMED_SHARE * steps_per_epoch * len(workload.steps[0]))))
        rows = min(rows, recipe.eval.limit or rows)
        sources, targets = (
            np.full(rows, lengths[0], dtype=np.int32) for lengths in (workload.source_lengths, workload.target_lengths)
        )
        longest = int(targets[0]) + int(targets[0]) // 4 + 1
        longest = longest if limit is None else max(1, min(longest, limit - 1))
    else:
        split = data.splits.get("validation")
        if split is None or not len(split):
            return None
        scored = spread_over_rows(len(split), recipe.eval.limit)
        sources, targets = split.source_lengths[scored], split.target_lengths[scored]
        sources = np.minimum(sources, workload.source_lengths.max())  # where a length was assumed
        targets = np.minimum(targets, max(1, int(workload.target_lengths.max())))
        longest = Generator.choose_answer_length(data.splits.values(), limit)
    is_classifier = workload.is_classifier
    return EvaluationWork(
        source_lengths=sources,
        target_lengths=np.zeros_like(targets) if is_classifier else np.maximum(targets, 1),
        times=count_evaluations(recipe, workload.total_steps, steps_per_epoch),
        batch_tokens=recipe.eval.batch_tokens,
        beams=1 if is_classifier else recipe.eval.beams,
        max_new_tokens=recipe.eval.max_new_tokens or longest,
    )


def count_evaluations(recipe: Recipe, total_steps: int, steps_per_epoch: float) -> int:
    """The last step is always followed by one."""
    every = recipe.eval.every_steps or max(1.0, steps_per_epoch)
    # An epoch may end between two steps of the count, by rounding.
    times = math.floor(total_steps / every + 1e-6)
    is_last_extra = total_steps - times * every >= 1
    return times + is_last_extra + recipe.eval.at_start
