from __future__ import annotations

import time

import pytest
import torch

from seqfit.training import peak as module
from seqfit.training.peak import CalibrationWorkload, build_calibration_workload
from seqfit.training.trial_variables import CALIBRATED

CPU = torch.device("cpu")


def test_it_runs_only_in_trials_of_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CALIBRATED, raising=False)
    assert build_calibration_workload(CPU, 1) == []
    monkeypatch.setenv(CALIBRATED, "1")
    assert len(build_calibration_workload(CPU, 1)) == 1
    assert build_calibration_workload(CPU, 2) == []
    assert build_calibration_workload(torch.device("cuda"), 1) == []


def test_the_rng_state_of_training_is_unchanged() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    CalibrationWorkload().measure_between_steps(0.0)
    assert torch.equal(torch.rand(3), expected)


def test_a_slower_machine_takes_longer_for_the_workload_and_a_long_step_has_more_runs_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[float] = []
    now = [0.0]

    def run(self: CalibrationWorkload) -> None:
        made.append(now[0])
        now[0] += 0.006

    monkeypatch.setattr(CalibrationWorkload, "_run", run)
    monkeypatch.setattr(module, "time", type("Clock", (), {"perf_counter": staticmethod(lambda: now[0])}))
    assert CalibrationWorkload().measure_between_steps(0.045) == pytest.approx(0.006)
    assert len(made) == 2  # one that is not timed
    assert CalibrationWorkload().measure_between_steps(1.2) == pytest.approx(0.006)
    assert len(made) == 2 + 1 + 10  # 5% of the step


def test_the_workload_takes_a_few_milliseconds() -> None:
    workload = CalibrationWorkload()
    workload.measure_between_steps(0.0)
    started = time.perf_counter()
    assert 0 < workload.measure_between_steps(0.0) <= time.perf_counter() - started
