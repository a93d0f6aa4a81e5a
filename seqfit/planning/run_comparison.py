"""Predicted and measured memory and time of finished runs, from their directories. No torch here.

    run          peak memory   measured   ratio   time per step   measured   ratio   evaluation   measured   ratio
    runs/demo        211 MiB    208 MiB    0.99           84 ms      91 ms    1.08        1.9 s      2.2 s    1.16

The ratio is measured over predicted: above 1, the run needed more. A figure that the run does not have is absent; the
run's directory says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqfit.errors import RunError
from seqfit.rundir import Run, summarise_steps


@dataclass(frozen=True)
class PredictedFigure:
    predicted: float | None
    measured: float | None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted and self.measured is not None else None


@dataclass(frozen=True)
class RunFigures:
    run: str
    device: str
    processes: int
    peak_bytes: PredictedFigure
    step_seconds: PredictedFigure
    evaluation_seconds: PredictedFigure  # of one, scoring included
    peak_is: str  # what was measured

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for name in ("peak_bytes", "step_seconds", "evaluation_seconds"):
            values[name]["ratio"] = getattr(self, name).ratio
        return values


def compare_runs(paths: Iterable[str | Path]) -> list[RunFigures]:
    return [_compare(Run(path)) for path in paths]


def _compare(run: Run) -> RunFigures:
    manifest = run.manifest
    found = manifest.get("prediction")
    if not isinstance(found, Mapping):
        raise RunError(
            f"'{run.path}' has no prediction in its manifest",
            "a run has one unless SEQFIT_PREDICTION=off, or seqfit was older",
            "Name another run",
        )
    measured_seconds = found.get("measured_step_seconds")
    if measured_seconds is None:  # it has not ended, or was killed
        measured_seconds = summarise_steps(run.steps()).step_seconds
    hardware = manifest.get("hardware", {})
    return RunFigures(
        run=str(run.path),
        device=str(hardware.get("name", "")),
        processes=int(manifest.get("processes") or 1),
        peak_bytes=PredictedFigure(found.get("predicted_peak_bytes"), found.get("measured_peak_bytes")),
        step_seconds=PredictedFigure(found.get("predicted_step_seconds"), measured_seconds),
        evaluation_seconds=PredictedFigure(
            found.get("predicted_evaluation_seconds"), find_evaluation_seconds(run.evaluations())
        ),
        peak_is=str(found.get("measured_peak_is", "")),
    )


def find_evaluation_seconds(evaluations: Iterable[Mapping[str, Any]]) -> float | None:
    """Of a usual one; None where there was none."""
    seconds = [record["seconds"] for record in evaluations if record.get("seconds") is not None]
    return statistics.median(seconds) if seconds else None
