from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.rundir import Run, RunWriter
from seqfit.rundir.reader import list_shares, sum_phases
from seqfit.rundir.records import StepRecord

STEP: dict[str, Any] = dict.fromkeys(StepRecord.__dataclass_fields__, 1)


def record(step: int, step_seconds: float, **phases: float) -> dict[str, Any]:
    return STEP | {"step": step, "step_seconds": step_seconds, "phase_seconds": phases}


def test_the_example_of_the_docstring_holds() -> None:
    steps = [record(10, 2.0, forward=6.0, backward=12.0, data_wait=1.0, evaluation=5.0)]
    assert list(sum_phases(steps, {}).items()) == [
        ("backward", 12.0),
        ("forward", 6.0),
        ("evaluation", 5.0),
        ("data_wait", 1.0),
        ("other", 1.0),
    ]


def test_windows_of_records_add_up() -> None:
    steps = [record(10, 1.0, forward=9.0), record(15, 2.0, forward=8.0)]
    assert sum_phases(steps, {}) == {"forward": 17.0, "other": 10 + 2 * 5 - 17.0}


def test_the_evaluation_after_the_last_record_is_in_the_runs_own_sums() -> None:
    steps = [record(10, 1.0, forward=9.0)]
    assert sum_phases(steps, {"forward": 9.0, "evaluation": 30.0})["evaluation"] == 30.0


def test_after_a_resume_the_records_know_more_than_the_run_that_went_on() -> None:
    steps = [record(10, 1.0, forward=9.0, evaluation=4.0), record(20, 1.0, forward=9.0)]
    assert sum_phases(steps, {"forward": 9.0, "evaluation": 2.0}) == {"forward": 18.0, "evaluation": 4.0, "other": 2.0}


@pytest.mark.parametrize("steps", [[], [{"step": 1, "step_seconds": 1.0}]])
def test_a_run_without_phases_has_nothing_to_tell(steps: list[dict[str, Any]]) -> None:
    assert sum_phases(steps, {}) == {}
    assert list_shares({}) == []


def test_shares_are_of_the_whole_and_tiny_ones_are_left_out() -> None:
    assert list_shares({"data_wait": 3.0, "forward": 1.0, "host_to_device": 1e-4}) == [
        ("data wait", 3.0, pytest.approx(0.75, abs=1e-4)),
        ("forward", 1.0, pytest.approx(0.25, abs=1e-4)),
    ]


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    writer.write_manifest(phase_seconds={"forward": 1.5, "checkpoint": 0.5})
    writer.step(StepRecord(**record(2, 1.0, forward=1.5)))
    writer.close()
    assert Run(tmp_path / "run").time_spent() == {"forward": 1.5, "checkpoint": 0.5, "other": 0.5}
