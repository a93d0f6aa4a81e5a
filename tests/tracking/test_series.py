from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from seqfit.rundir import Run
from seqfit.rundir.records import GpuReading, HostReading, TelemetryRecord
from seqfit.tracking.track import read_config, read_sample, read_scores, read_step


def test_phases_are_seconds_of_one_step_and_what_is_between_is_whole(run_path: Path) -> None:
    found = read_step(Run(run_path).steps()[1], steps=10)
    assert found["phase/forward_seconds"] == pytest.approx(0.05)
    assert found["between/evaluation_seconds"] == 3.0
    assert found["train/loss"] == 0.25
    assert found["train/padding_share"] == 0.2


def test_what_was_not_measured_is_absent(run_path: Path) -> None:
    found = read_step(Run(run_path).steps()[0], steps=10)
    assert "train/gradient_norm" not in found
    assert "train/time" not in found


def test_host_and_every_gpu_have_their_own_names() -> None:
    host = HostReading([0.5, 0.1], 1.0, 1, None, 5, 6, None, None, None, None)
    gpus = [GpuReading(0, 0.9, throttle_reasons=["power_cap", "heat"]), GpuReading(1, power_watts=50.0)]
    found = read_sample(asdict(TelemetryRecord(1.0, host, gpus, 0.01)))
    assert found["host/core_share"] == pytest.approx(0.3)
    assert (found["gpu/0/busy_share"], found["gpu/0/throttle_reasons"], found["gpu/1/power_watts"]) == (0.9, 2.0, 50.0)
    assert "gpu/1/throttle_reasons" not in found
    assert "host/cores_used" not in found


def test_final_scores_are_those_of_the_evaluated_checkpoint(run_path: Path) -> None:
    assert read_scores(Run(run_path)) == {"final/test/f1": 58.5}


def test_the_config_has_recipe_strategy_and_environment_without_secrets(run_path: Path) -> None:
    found = read_config(Run(run_path))
    assert found["recipe.train.learning_rate"] == 1e-3
    assert found["strategy.precision"] == "fp32"
    assert found["environment.versions.torch"] == "2.13.0"
    assert found["environment.command"] == "seqfit train x --hf-token ***"
    assert not [name for name, value in found.items() if "hunter2" in str(value)]
