from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile
from seqfit.telemetry import sampler
from seqfit.telemetry.sampler import SamplerProcess
from tests.processes import wait_until


class Reported:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def __call__(self, kind: str, message: str) -> None:
        self.events.append((kind, message))


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Reported:
    """Nothing of a sampler that is slow to end because others need the cores."""
    monkeypatch.setattr(sampler, "_STOP_SECONDS", 240.0)
    return Reported()


def wait_for_samples(folder: Path, count: int) -> None:
    wait_until(lambda: len(RecordFile(folder / files.TELEMETRY).read()) >= count, f"{count} samples")


def test_a_run_is_sampled_until_it_ends_and_gpus_are_replayed(
    tmp_path: Path, recording: Path, reported: Reported
) -> None:
    with SamplerProcess(tmp_path, 50, reported, replay=recording):
        wait_for_samples(tmp_path, 5)
    samples = RecordFile(tmp_path / files.TELEMETRY).read()
    time.sleep(0.1)
    assert RecordFile(tmp_path / files.TELEMETRY).read() == samples
    played = RecordFile(recording / files.TELEMETRY).read()
    assert [sample["gpus"] for sample in samples] == [sample["gpus"] for sample in played[: len(samples)]]
    assert reported.events == []


def test_without_a_gpu_the_host_is_sampled_and_an_event_says_why(tmp_path: Path, reported: Reported) -> None:
    with SamplerProcess(tmp_path, 50, reported, replay=tmp_path):  # a recording without GPUs
        wait_for_samples(tmp_path, 2)
    samples = RecordFile(tmp_path / files.TELEMETRY).read()
    assert {tuple(sample["gpus"]) for sample in samples} == {()}
    assert samples[1]["host"]["memory_bytes"] > 0
    assert reported.events == [("telemetry", f"no GPU readings: {tmp_path / files.TELEMETRY} has no GPU readings")]


def test_a_rate_of_zero_starts_nothing(tmp_path: Path, reported: Reported) -> None:
    with SamplerProcess(tmp_path, 0, reported):
        pass
    assert list(tmp_path.iterdir()) == []
    assert reported.events == []


def test_a_sampler_that_fails_does_not_stop_the_run_and_is_an_event(tmp_path: Path, reported: Reported) -> None:
    with SamplerProcess(tmp_path / "nowhere", 50, reported):
        time.sleep(0)
    ((kind, message),) = reported.events
    assert kind == "telemetry"
    assert message.startswith("sampling ended early: seqfit.errors.TrainingFailed")


def test_a_sampler_that_does_not_start_is_an_event(
    tmp_path: Path, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with SamplerProcess(tmp_path, 50, reported):
        pass
    ((_, message),) = reported.events
    assert message.startswith("nothing is sampled: FileNotFoundError: [Errno 2]")


def test_a_sampler_that_does_not_end_is_killed_and_is_an_event(
    tmp_path: Path, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\nexec sleep 600\n")
    stubborn.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stubborn))
    monkeypatch.setattr(sampler, "_STOP_SECONDS", 0.1)
    with SamplerProcess(tmp_path, 50, reported):
        pass
    assert reported.events == [("telemetry", "the sampler did not end within 0.1 s and was killed")]
