"""Applies a finding's change and measures again: the expected gain and the measured one.

In: a recipe, a finding, how to build a `TrainingSetup`. Out: a `Proof`. Both sides are built again for every repeat and
alternate, so that a machine that becomes slower affects both:

    before 1.00 s   after 0.72 s   before 1.10 s   after 0.80 s   before 1.02 s   after 0.74 s
    gains  28.0%                   27.3%                          27.5%              ->  measured 27.5%, in all repeats

Time is per real token, with evaluation's share, so that batches of different sizes compare. A gain in memory is that of
a step's peak without weights and optimizer state.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import RecipeError
from seqfit.profiling.capture import capture
from seqfit.profiling.findings import Cause, Finding
from seqfit.profiling.host import HostTimeline
from seqfit.profiling.measure import measure_training_steps
from seqfit.profiling.tables import Phases, build_timeline
from seqfit.recipe import Recipe, load_recipe
from seqfit.training import TrainingSetup

Build = Callable[[Recipe], TrainingSetup]
PROOF_REPEATS = 3


@dataclass(frozen=True)
class Proof:
    """A finding that was tested. Values are seconds per token, or bytes."""

    finding: Finding
    before: list[float]
    after: list[float]

    @property
    def gains(self) -> list[float]:
        """Share saved, by repeat."""
        return [1 - after / before for before, after in zip(self.before, self.after, strict=True)]

    @property
    def measured_gain(self) -> float:
        return statistics.median(self.gains)

    @property
    def is_confirmed(self) -> bool:
        """A gain in every repeat."""
        return min(self.gains) > 0


def prove(recipe: Recipe, finding: Finding, build: Build, *, steps: int, repeats: int = PROOF_REPEATS) -> Proof:
    """Measure with and without the finding's change, alternating."""
    if not finding.change:
        raise RecipeError(
            f"the finding is {finding.cause}",
            "no setting of a recipe fixes it, so it can't be tried automatically",
            finding.advice,
        )
    changed = load_recipe(recipe, finding.change)
    look = _measure_peak if finding.gain_of == "memory" else _measure_time
    before: list[float] = []
    after: list[float] = []
    for _ in range(repeats):
        for side, values in ((recipe, before), (changed, after)):
            values.append(look(build(side), steps, finding))
            gc.collect()  # a model's modules refer to each other: the next one needs the memory
    return Proof(finding, before, after)


def _measure_time(setup: TrainingSetup, steps: int, finding: Finding) -> float:
    return measure_training_steps(setup, steps, evaluate=finding.cause == Cause.EVALUATION).seconds_per_token


def _measure_peak(setup: TrainingSetup, steps: int, finding: Finding) -> float:
    with tempfile.TemporaryDirectory(prefix="seqfit-prove-") as folder:
        trace = capture(setup, Path(folder) / "trace.json", min(steps, 2), stacks=False)
    timeline = build_timeline(trace, Phases(trace, HostTimeline(trace)))
    assert timeline is not None  # a step always allocates
    return timeline.peak_bytes
