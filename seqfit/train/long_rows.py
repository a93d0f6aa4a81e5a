"""Rows so long that a step takes minutes, or more memory than there is: what a length limit would change.

In: a recipe, the lengths of its training rows and what a step is predicted to take. Out: `LongRows`, where a step is
predicted to take more than a minute or does not fit: the limit that keeps 95% of the rows whole, and a sentence.

    sources of 900 to 30,000 tokens, 95% have at most 4,100; 3 min 20 s per step
    ->  limit 4100, and "task.max_source_tokens=2048 takes about 50 s per step and truncates 22.0% of the rows"

The one idea: what a limit saves is the cost of the example lengths before and after it, so nothing is tokenized or
predicted again. A recipe that was guessed gets the limit; one that was stated gets the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seqfit.data.tokenized import TokenizedSplit
from seqfit.model.flops import build_cost_model, count_training_flops, read_model_shape
from seqfit.recipe.schema import Recipe, TrainRecipe
from seqfit.strategy.cost import TOKENS, CostModel
from seqfit.units import format_bytes, format_seconds, format_share

SLOW_SECONDS = 60.0  # of a step
_WHOLE_PERCENT = 95
_ROUND_LIMITS = (8192, 4096, 2048, 1024, 512, 256, 128)

Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LongRows:
    """Why something should be changed, and what."""

    problem: str
    limit: int | None  # keeps 95% of the rows whole; None where it would change nothing
    whole: float  # share of the rows that the limit leaves as they are
    advice: str

    def explain_limit(self) -> str:
        """The event of a recipe that was given the limit."""
        return (
            f"task.max_source_tokens={self.limit} is set because {self.problem}; {format_share(self.whole)} of the "
            "training rows stay whole. A value of your own is kept"
        )

    def warn(self) -> str:
        """The event of a recipe that is kept as it is."""
        return f"{self.problem}. {self.advice}"


def find_long_rows(
    recipe: Recipe,
    split: TokenizedSplit,
    config: Mapping[str, Any],
    *,
    step_seconds: float | None,
    missing_bytes: int = 0,
    is_estimate: bool = False,
) -> LongRows | None:
    """None where a step takes less than a minute and fits.

    `is_estimate`: the seconds are those of the operations alone, and a step takes longer.
    """
    is_slow = step_seconds is not None and step_seconds > SLOW_SECONDS
    if not is_slow and missing_bytes <= 0:
        return None
    lengths = split.source_lengths
    longest, most = int(lengths.max()), int(np.percentile(lengths, _WHOLE_PERCENT, method="higher"))
    least = "at least " if is_estimate else ""
    takes = [f"a step is predicted to take {least}{format_seconds(step_seconds or 0)}"] if is_slow else []
    if missing_bytes > 0:
        takes.append(f"{format_bytes(missing_bytes)} more memory is predicted than there is")
    problem = f"{' and '.join(takes)}, with sources of up to {longest:,} tokens (95% of the rows have at most {most:,})"
    advice = _advise(recipe, split, config, step_seconds if is_slow else None, most if most < longest else None)
    limit = most if most < longest and recipe.task.max_source_tokens is None else None
    return LongRows(problem, limit, float((lengths <= most).mean()), advice)


def estimate_step_seconds(
    train: TrainRecipe, split: TokenizedSplit, config: Mapping[str, Any], flops_per_second: float
) -> float | None:
    """Of the operations that a mean step needs at least; None where they are not counted for this kind of model."""
    shape, _ = read_model_shape(config)
    if shape is None:
        return None
    flops = count_training_flops(shape, split.source_lengths, split.target_lengths)
    return flops / flops_per_second / _count_steps(train, split.source_lengths + split.target_lengths)


def _advise(
    recipe: Recipe, split: TokenizedSplit, config: Mapping[str, Any], step_seconds: float | None, most: int | None
) -> str:
    others = "fewer rows per step (train.batch_examples, train.batch_tokens) or a GPU help without truncating"
    if step_seconds is None:
        smaller = "A smaller" if most is None else f"task.max_source_tokens={most} or a smaller"
        return f"{smaller} task.max_source_tokens needs less memory; `seqfit plan` shows what fits"
    shape, _ = read_model_shape(config)
    cost = TOKENS if shape is None else build_cost_model(shape)
    for limit in _ROUND_LIMITS:
        seconds = step_seconds * _measure_saving(recipe.train, split, cost, limit)
        if seconds <= SLOW_SECONDS:
            cut = format_share(float((split.source_lengths > limit).mean()))
            takes = f"takes about {format_seconds(seconds)} per step and truncates {cut} of the rows"
            return f"task.max_source_tokens={limit} {takes}; {others}"
    return f"No length limit brings it below a minute; {others.replace(' without truncating', '')}"


def _measure_saving(train: TrainRecipe, split: TokenizedSplit, cost: CostModel, limit: int) -> float:
    """What share of its cost a mean step keeps where sources have at most `limit` tokens."""

    def mean_cost(sources: Lengths) -> float:
        steps = _count_steps(train, sources + split.target_lengths)
        return float(cost.costs(sources, split.target_lengths).sum()) / steps

    return mean_cost(np.minimum(split.source_lengths, limit)) / mean_cost(split.source_lengths)


def _count_steps(train: TrainRecipe, lengths: Lengths) -> float:
    """Steps of one epoch."""
    if train.batch_tokens is not None:
        return max(1.0, float(lengths.sum()) / train.batch_tokens)
    return max(1.0, len(lengths) / (train.examples_per_step or 1))
