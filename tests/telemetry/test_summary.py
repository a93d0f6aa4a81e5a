from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile
from seqfit.telemetry.summary import find_trained, summarise_gpus, summarise_host


def test_a_recorded_run_in_a_few_numbers(recording: Path) -> None:
    samples = RecordFile(recording / files.TELEMETRY).read()
    hot, idle = summarise_gpus(samples)
    assert hot.mean_busy_share == pytest.approx(0.93 * 280 / 300, abs=0.01)
    assert hot.peak_temperature_celsius == 85
    assert hot.peak_memory_bytes == 17_300_000_000
    assert hot.throttled_shares is not None
    assert set(hot.throttled_shares) == {"power_cap", "thermal_software"}
    assert hot.throttled_shares["power_cap"] + hot.throttled_shares["thermal_software"] == pytest.approx(269 / 300)
    assert (idle.gpu, idle.mean_busy_share, idle.peak_temperature_celsius) == (1, 0.0, 31)


def test_energy_is_that_of_the_run_and_agrees_with_the_power(recording: Path) -> None:
    samples = RecordFile(recording / files.TELEMETRY).read()
    (hot, _) = summarise_gpus(samples)
    powers = [sample["gpus"][0]["power_watts"] for sample in samples[:-1]]
    assert hot.energy_joules == pytest.approx(sum(powers) / 2)


def test_what_a_gpu_never_gave_is_none_and_not_zero(recording: Path) -> None:
    (_, idle) = summarise_gpus(RecordFile(recording / files.TELEMETRY).read())
    assert (idle.energy_joules, idle.throttled_shares) == (None, None)


def test_the_host_in_a_few_numbers(recording: Path) -> None:
    host = summarise_host(RecordFile(recording / files.TELEMETRY).read())
    assert (host.samples, host.seconds) == (300, 149.5)
    assert host.mean_core_share == pytest.approx(0.3)
    assert host.mean_cores_used == pytest.approx(1.1)
    assert host.peak_memory_bytes == 2_799_000_000
    assert host.mean_disk_read_bytes_per_second == pytest.approx(2e6)
    assert host.sampler_cpu_share == pytest.approx(0.001)


def test_no_samples_are_no_error() -> None:
    assert summarise_gpus([]) == []
    host = summarise_host([])
    assert (host.samples, host.mean_core_share, host.sampler_cpu_share) == (0, None, None)


LISTED = [
    {"gpu": 0, "uuid": "GPU-aa"},
    {"gpu": 1, "uuid": "GPU-bb"},
    {"gpu": 2, "uuid": "MIG-cc"},
    {"gpu": 3, "uuid": None},
]


@pytest.mark.parametrize(
    ("hardware", "numbers"),
    [
        ({"uuid": "bb"}, {1}),
        ({"uuid": "aa", "uuids": ["aa", "bb"]}, {0, 1}),
        ({"uuid": "MIG-cc"}, {2}),
        ({"uuid": "cc"}, {2}),
        ({"uuid": "elsewhere"}, {0, 1, 2, 3}),
        ({}, {0, 1, 2, 3}),
    ],
)
def test_the_gpus_of_a_run_are_identified_by_their_uuids(hardware: dict[str, Any], numbers: set[int]) -> None:
    assert find_trained(LISTED, hardware) == numbers
