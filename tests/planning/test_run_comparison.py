from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RunError
from seqfit.planning.run_comparison import compare_runs
from seqfit.rundir import files

PREDICTION = {
    "predicted_peak_bytes": 1000,
    "measured_peak_bytes": 1100,
    "measured_peak_is": "allocated in step 4",
    "predicted_step_seconds": 2.0,
    "measured_step_seconds": 3.0,
    "predicted_evaluation_seconds": 10.0,
}


def write_run(folder: Path, prediction: dict[str, Any] | None, *, evaluations: list[float] = []) -> Path:  # noqa: B006
    folder.mkdir()
    manifest = {"hardware": {"name": "NVIDIA GeForce RTX 3090"}, "processes": 2}
    manifest |= {} if prediction is None else {"prediction": prediction}
    (folder / files.MANIFEST).write_text(json.dumps(manifest))
    records = [{"step": 1, "split": "validation", "scores": {}, "seconds": value, "time": 0} for value in evaluations]
    (folder / files.EVALUATIONS).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    steps = [{"step": step, "time": 0, "step_seconds": 4.0} for step in range(1, 9)]
    (folder / files.STEPS).write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    return folder


def test_ratios_are_measured_over_predicted(tmp_path: Path) -> None:
    (found,) = compare_runs([write_run(tmp_path / "run", PREDICTION, evaluations=[8.0, 12.0, 40.0])])
    assert found.peak_bytes.ratio == pytest.approx(1.1)
    assert found.step_seconds.ratio == pytest.approx(1.5)
    assert found.evaluation_seconds.measured == 12.0  # the usual one
    assert found.to_json()["evaluation_seconds"]["ratio"] == pytest.approx(1.2)
    assert (found.device, found.processes) == ("NVIDIA GeForce RTX 3090", 2)


def test_what_a_run_lacks_is_absent(tmp_path: Path) -> None:
    prediction = PREDICTION | {"measured_peak_bytes": None, "predicted_evaluation_seconds": None}
    (found,) = compare_runs([write_run(tmp_path / "run", prediction)])
    assert found.peak_bytes.ratio is None
    assert found.evaluation_seconds.measured is None
    assert found.evaluation_seconds.ratio is None


def test_a_run_that_has_not_ended_has_the_time_of_its_steps(tmp_path: Path) -> None:
    (found,) = compare_runs([write_run(tmp_path / "run", PREDICTION | {"measured_step_seconds": None})])
    assert found.step_seconds.measured == 4.0


def test_runs_without_a_prediction_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no prediction"):
        compare_runs([write_run(tmp_path / "run", None)])
