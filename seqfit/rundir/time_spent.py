"""Where the time of a run went: the phases of its steps and what came between them.

In: a run directory. Out: seconds of each phase, the longest first. What of the steps' time no phase accounts for
(choosing a learning rate, writing records) is `other`.

    10 steps of 2 s, phases {forward: 6, backward: 12, data_wait: 1, evaluation: 5}
    ->   {backward: 12, forward: 6, evaluation: 5, data_wait: 1, other: 1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.rundir.records import BETWEEN_STEPS
from seqfit.rundir.run import Run


def read_time_spent(run: Run) -> dict[str, float]:
    """Seconds by phase; empty where the run has no record of a step, or was made before phases were recorded."""
    return sum_phases(run.steps(), run.manifest.get("phase_seconds", {}))


def sum_phases(steps: Sequence[Mapping[str, Any]], of_the_run: Mapping[str, float]) -> dict[str, float]:
    """Records miss the evaluation after the last of them, the run's own sums miss what came before a resume."""
    recorded: dict[str, float] = {}
    stepping, before = 0.0, 0
    for record in steps:
        for name, seconds in record.get("phase_seconds", {}).items():
            recorded[name] = recorded.get(name, 0.0) + seconds
        stepping += record["step_seconds"] * (record["step"] - before)
        before = record["step"]
    if not recorded:
        return {}
    spent = {name: max(recorded.get(name, 0.0), of_the_run.get(name, 0.0)) for name in {**recorded, **of_the_run}}
    inside = sum(seconds for name, seconds in spent.items() if name not in BETWEEN_STEPS)
    spent["other"] = max(0.0, stepping - inside)
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def list_shares(spent: Mapping[str, float], at_least: float = 0.0005) -> list[tuple[str, float, float]]:
    """Name in words, seconds and share of the whole; what would be written as 0.0% is left out."""
    whole = sum(spent.values())
    shares = [(name.replace("_", " "), seconds, seconds / whole) for name, seconds in spent.items() if whole > 0]
    return [entry for entry in shares if entry[2] >= at_least]
