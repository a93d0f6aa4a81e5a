"""How far an entrant's loss is from the reference's, step by step: the proof that a lossless strategy is one.

In: the runs of all trials. Out: for each entrant the largest gap over its seeds and steps.

    step          1        2        3
    vanilla    2.4012   2.1180   1.9021
    recompute  2.4012   2.1180   1.9022      ->   Gap(0.0001, step 3, seed 0)

Where dropout is on, the numbers it draws depend on how a batch is cut, so equal losses can't be expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seqfit.compare.collect import TrialRun

TOLERANCE = 1e-4  # what rounding may leave between the losses of two lossless ways


@dataclass(frozen=True)
class Gap:
    """The largest difference between two curves, and where it is."""

    difference: float
    step: int
    seed: int
    steps: int  # that were compared

    @property
    def is_rounding(self) -> bool:
        """Whether the curves are the same but for rounding."""
        return self.difference <= TOLERANCE


def find_gaps(runs: Sequence[TrialRun], reference: str) -> dict[str, Gap]:
    """Of every entrant but the reference that has a run with one of its seeds."""
    known = {run.trial.seed: run for run in reversed(runs) if run.trial.entrant == reference}
    gaps: dict[str, Gap] = {}
    for run in runs:
        name, other = run.trial.entrant, known.get(run.trial.seed)
        gap = None if other is None or name == reference else _find_gap(run, other)
        if gap is not None and (name not in gaps or gap.difference > gaps[name].difference):
            gaps[name] = gap
    return gaps


def has_no_dropout(run: TrialRun) -> bool:
    """Whether its recipe turns dropout off; a recipe that does not say leaves it to the model's config."""
    model = run.recipe.get("model") or {}
    adapters = model.get("lora") or {}
    return model.get("dropout") == 0 and not adapters.get("dropout")


def _find_gap(run: TrialRun, reference: TrialRun) -> Gap | None:
    gaps = list(_differences(run, reference))
    if not gaps:
        return None
    difference, step = max(gaps)
    return Gap(difference, step, run.trial.seed, len(gaps))


def _differences(run: TrialRun, reference: TrialRun) -> Iterator[tuple[float, int]]:
    for step, loss in run.losses.items():
        if step in reference.losses:
            yield abs(loss - reference.losses[step]), step
