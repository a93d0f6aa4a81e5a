"""What a run feeds its model: the lengths of its examples, in the batches that its recipe makes of them.

In: a training split's lengths and a recipe, or lengths that somebody asks about. Out: a `Workload` that a strategy's
rule cuts into micro-batches:

    steps [[0, 1], [2, 3]] of lengths 7 3 | 4 4, at most 8 tokens        (7) (3)   (4 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from seqfit.data.batching import MicroBatchRule, cut_global_batches, cut_micro_batches, order_epoch
from seqfit.data.loader import Split
from seqfit.errors import PlanError, complain
from seqfit.plan.shape import Shape

Lengths = npt.NDArray[np.int32]
_SAMPLED_STEPS = 48  # whose mean is the step time; all steps are looked at for the largest micro-batch


@dataclass(frozen=True)
class Workload:
    """Lengths of the examples, and which of them make a step. A classifier's targets are not text."""

    source_lengths: Lengths
    target_lengths: Lengths
    steps: tuple[npt.NDArray[np.int64], ...]  # rows of each global batch of the first epoch
    is_classifier: bool
    total_steps: int

    def cut(self, rule: MicroBatchRule, steps: Sequence[npt.NDArray[np.int64]]) -> list[list[Shape]]:
        """The micro-batches of some steps."""
        return [
            [
                self._shape(rows, rule)
                for rows in cut_micro_batches(step, self.source_lengths, self.target_lengths, rule)
            ]
            for step in steps
        ]

    def sample(self) -> list[npt.NDArray[np.int64]]:
        """Steps spread over the epoch, and those with the most tokens and the longest example."""
        every = max(1, len(self.steps) // _SAMPLED_STEPS)
        return [*self.steps[::every][:_SAMPLED_STEPS], *self.largest()]

    def largest(self) -> list[npt.NDArray[np.int64]]:
        """The steps that memory is decided by."""
        lengths = self.source_lengths + self.target_lengths
        by_tokens = max(self.steps, key=lambda rows: int(lengths[rows].sum()))
        by_longest = max(self.steps, key=lambda rows: int(lengths[rows].max()))
        return [by_tokens] if by_tokens is by_longest else [by_tokens, by_longest]

    def with_longest(self, source_tokens: int | None, target_tokens: int | None) -> Workload:
        """As if the longest texts had so many tokens: longer ones are cut, and the longest one becomes so long."""
        sources = _with_longest(self.source_lengths, source_tokens)
        targets = self.target_lengths if self.is_classifier else _with_longest(self.target_lengths, target_tokens)
        return replace(self, source_lengths=sources, target_lengths=targets)

    def real_tokens(self, steps: Sequence[npt.NDArray[np.int64]]) -> int:
        """Source and target tokens of some steps."""
        return int(sum((self.source_lengths[rows] + self.target_lengths[rows]).sum() for rows in steps))

    def _shape(self, rows: npt.NDArray[np.int64], rule: MicroBatchRule) -> Shape:
        sources, targets = self.source_lengths[rows], self.target_lengths[rows]
        if rule.batching == "ragged":
            return Shape(tuple(sources.tolist()), None if self.is_classifier else tuple(targets.tolist()), packed=True)
        source, target = rule.padded_shape(int(sources.max()), int(targets.max()))
        return Shape((source,) * len(rows), None if self.is_classifier else (target,) * len(rows), packed=False)


def _with_longest(lengths: Lengths, longest: int | None) -> Lengths:
    if longest is None:
        return lengths
    if longest < 1:
        raise PlanError(
            complain(
                f"a longest text of {longest} tokens is asked about",
                "a text has at least one token",
                "Give a length from 1 on, such as --what-if max_source_tokens=512",
            )
        )
    changed = np.minimum(lengths, longest)
    changed[int(lengths.argmax())] = longest
    return changed


def build_workload(
    split: Split,
    *,
    batch_examples: int | None,
    batch_tokens: int | None,
    seed: int,
    total_steps: int,
    is_classifier: bool,
) -> Workload:
    """From a tokenized split, in the very order that training takes."""
    order = order_epoch(split.source_index, split.weights, seed, 0)
    lengths = split.source_lengths + split.target_lengths
    steps = cut_global_batches(order, lengths, examples=batch_examples, tokens=batch_tokens)
    targets = np.zeros_like(split.target_lengths) if is_classifier else split.target_lengths
    return Workload(split.source_lengths, targets, tuple(steps), is_classifier, total_steps)


def assume_workload(
    examples: int, source_tokens: int, target_tokens: int, *, is_classifier: bool = False, total_steps: int = 1
) -> Workload:
    """All examples alike, for a question without data."""
    if min(examples, source_tokens) < 1 or (target_tokens < 1 and not is_classifier):
        raise PlanError(
            complain(
                f"{examples} examples of {source_tokens} source and {target_tokens} target tokens are asked about",
                "a batch has at least one example, and each text at least one token",
                "Give lengths from 1 on, such as --source-tokens 512 --target-tokens 64",
            )
        )
    targets = np.full(examples, 0 if is_classifier else target_tokens, dtype=np.int32)
    sources = np.full(examples, source_tokens, dtype=np.int32)
    return Workload(sources, targets, (np.arange(examples),), is_classifier, total_steps)
