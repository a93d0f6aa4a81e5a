from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.collect import TrialRun, measure_trial, read_trial
from seqfit.comparison.records import read_outcomes
from seqfit.rundir import files
from seqfit.rundir.records import GpuReading, HostReading, TelemetryRecord
from tests.comparison.made_runs import BASELINE, START, add_trial, make_folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The run directory of one trial: 12 steps of 0.4, 0.8 and 0.5 s in turn, the first of them 3 times slower."""
    return add_trial(make_folder(tmp_path), BASELINE)


def read(path: Path) -> TrialRun:
    folder = path.parents[1]
    return read_trial(folder, read_outcomes(folder)[0])


def test_warm_up_steps_are_in_no_time(path: Path) -> None:
    steps = [0.5 if step % 3 == 2 else 0.8 if step % 3 == 1 else 0.4 for step in range(3, 13)]
    values = measure_trial(read(path), warm_up=2).values
    assert values["step_seconds"] == pytest.approx(sorted(steps)[4] / 2 + sorted(steps)[5] / 2)
    assert measure_trial(read(path), warm_up=0).values["step_seconds"] == pytest.approx(0.5)


def test_the_calibrated_clock_counts_a_step_in_the_calibration_workloads_around_it(path: Path) -> None:
    lines = [json.loads(line) for line in (path / files.STEPS).read_text().splitlines()]
    assert all("calibration_seconds" in line for line in lines)  # as training writes them
    slow = [line | {"calibration_seconds": 0.02 if line["step"] > 6 else 0.01} for line in lines]
    slow = [line | {"step_seconds": line["step_seconds"] * (2 if line["step"] > 6 else 1)} for line in slow]
    (path / files.STEPS).write_text("".join(json.dumps(line) + "\n" for line in slow))
    run = read(path)
    own = run.by_step("calibrated_step", 2)
    assert [own[step] for step in (3, 6, 9, 12)] == pytest.approx([40.0] * 4)  # one kind of step; slow from the 7th on
    assert own[7] == pytest.approx(2 * 80 / 1.5)  # between a fast and a slow calibration


def test_tokens_per_second_are_real_tokens_per_step_over_the_step_time(path: Path) -> None:
    tokens = [100 * (1 + step % 3) + 8 for step in range(3, 13)]
    values = measure_trial(read(path), warm_up=2).values
    assert values["tokens_per_second"] == pytest.approx(sum(tokens) / len(tokens) / values["step_seconds"])


def test_a_record_of_several_steps_counts_as_several(path: Path) -> None:
    lines = [json.loads(line) for line in (path / files.STEPS).read_text().splitlines()]
    every_fourth = [line for line in lines if line["step"] % 4 == 0]
    (path / files.STEPS).write_text("".join(json.dumps(line) + "\n" for line in every_fourth))
    run = read(path)
    assert [count for _, count in run.timed(4)] == [4, 4]


def test_what_a_cpu_does_not_have_is_absent_with_a_reason(path: Path) -> None:
    measures = measure_trial(read(path), warm_up=2)
    assert measures.values["resident_bytes"] == 2**30
    assert measures.values["cores_used"] == pytest.approx(1.8)
    assert measures.absent == {
        "allocated_bytes": "not measured: no step was watched",
        "reserved_bytes": "torch reserves no memory on a CPU",
        "gpu_busy_share": "no driver",
        "energy_joules": "no driver",
        "temperature_celsius": "no driver",
    }


@pytest.mark.parametrize(("is_of_all", "found"), [(True, 2**28), (False, None)])
def test_on_a_cpu_a_peak_counts_only_if_it_is_that_of_the_largest_steps(
    path: Path, is_of_all: bool, found: int | None
) -> None:
    manifest: dict[str, Any] = json.loads((path / files.MANIFEST).read_text())
    peak = {"measured_peak_bytes": 2**28, "measured_peak_is": "allocated in step 2", "peak_is_of_all_steps": is_of_all}
    (path / files.MANIFEST).write_text(json.dumps(manifest | {"prediction": peak}))
    measures = measure_trial(read(path), warm_up=2)
    assert measures.values.get("allocated_bytes") == found
    reported = measures.absent.get("allocated_bytes", "")
    assert reported.startswith("the peak of the largest steps was not measured") == (found is None)


def write_gpu_run(path: Path) -> None:
    """The same run on two GPUs, sampled every second from the start of the run on."""
    host = HostReading([0.5], 1.0, 2, 1.0, 2**31, 2**31, None, None, None, None)
    samples = []
    for second in range(14):
        busy = 0.1 if second < 2 else 0.8
        gpus = [GpuReading(gpu, busy + 0.1 * gpu, temperature_celsius=60.0 + second, energy_joules=100.0 * second)
                for gpu in (0, 1)]  # fmt: skip
        samples.append(TelemetryRecord(START + second, host, gpus, 0.01))
    (path / files.TELEMETRY).write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
    manifest: dict[str, Any] = json.loads((path / files.MANIFEST).read_text())
    manifest["hardware"]["device"] = "cuda"
    manifest["prediction"] = {"measured_peak_bytes": 3 * 2**29, "measured_peak_is": "reserved by torch's allocator"}
    (path / files.MANIFEST).write_text(json.dumps(manifest))


def test_a_gpus_readings_are_of_the_steps_after_warm_up(path: Path) -> None:
    write_gpu_run(path)
    values = measure_trial(read(path), warm_up=2).values
    assert values["gpu_busy_share"] == pytest.approx(0.85)  # the idle seconds were before step 3
    assert values["energy_joules"] == pytest.approx(2 * 100 * 9)  # of both, from second 3 to 12
    assert values["temperature_celsius"] == 72
    assert (values["allocated_bytes"], values["reserved_bytes"]) == (2**29, 3 * 2**29)


def test_energy_of_a_gpu_that_somebody_else_uses_does_not_count(path: Path) -> None:
    write_gpu_run(path)
    gpus = [{"gpu": number, "name": "A100", "uuid": f"GPU-{number}", "memory_bytes": 1} for number in (0, 1)]
    (path / files.SENSORS).write_text(json.dumps({"hz": 1, "gpus": gpus, "absent": {}}))
    manifest = json.loads((path / files.MANIFEST).read_text())
    manifest["hardware"]["uuid"] = "1"
    (path / files.MANIFEST).write_text(json.dumps(manifest))
    values = measure_trial(read(path), warm_up=2).values
    assert values["energy_joules"] == pytest.approx(100 * 9)
    assert values["gpu_busy_share"] == pytest.approx(0.9)


def test_one_reading_of_a_counter_is_no_energy(path: Path) -> None:
    write_gpu_run(path)
    lines = (path / files.TELEMETRY).read_text().splitlines()
    (path / files.TELEMETRY).write_text(lines[5] + "\n")
    assert "energy_joules" not in measure_trial(read(path), warm_up=2).values


def test_the_answer_is_the_last_loss_and_the_last_scores(path: Path) -> None:
    values = measure_trial(read(path), warm_up=2).values
    assert values["final_loss"] == pytest.approx(2.0 - 1.2)
    assert (values["accuracy"], values["evaluation_loss"]) == (90.0, 0.5)


def test_a_trial_that_was_stopped_has_times_only(path: Path) -> None:
    run = read(path)
    stopped = replace(run, outcome=replace(run.outcome, state="unfinished"))
    assert set(measure_trial(stopped, warm_up=2).values) == {"step_seconds", "tokens_per_second"}


def test_a_truncated_last_line_is_left_out(path: Path) -> None:
    text = (path / files.STEPS).read_text()
    (path / files.STEPS).write_text(text[:-30])
    run = read(path)
    assert sorted(run.batches) == list(range(1, 12))
    assert not run.missing


def test_missing_telemetry_leaves_the_times_and_is_reported(path: Path) -> None:
    (path / files.TELEMETRY).unlink()
    run = read(path)
    measures = measure_trial(run, warm_up=2)
    assert run.missing == {files.TELEMETRY: "there is no telemetry.jsonl"}
    assert "step_seconds" in measures.values
    assert measures.absent["resident_bytes"] == measures.absent["cores_used"] == "there is no telemetry"


def test_a_run_that_died_before_its_first_record_says_what_is_missing(path: Path) -> None:
    (path / files.STEPS).write_text("")
    measures = measure_trial(read(path), warm_up=2)
    assert "steps.jsonl is empty" in read(path).missing.values()
    assert measures.absent["step_seconds"] == "0 steps are recorded, of which 2 are warm-up"


@pytest.mark.parametrize("damaged", [files.MANIFEST, files.STEPS, files.RECIPE, files.SENSORS])
def test_a_damaged_file_is_reported_and_the_others_are_read(path: Path, damaged: str) -> None:
    (path / damaged).write_bytes(b"\xff{ not: what was [written\nmore\n")
    run = read(path)
    assert damaged in run.missing
    assert run.evaluations
    assert measure_trial(run, warm_up=2).values["accuracy"] == 90.0


def test_a_run_directory_that_is_gone_leaves_nothing(path: Path) -> None:
    shutil.rmtree(path)
    run = read(path)
    assert {files.MANIFEST, files.STEPS} <= set(run.missing)
    assert measure_trial(run, warm_up=2).values == {}


def test_answers_are_those_of_the_last_evaluation_only(path: Path) -> None:
    answers = [{"references": ["a"], "prediction": "a"}]
    report = {"split": "validation", "step": 12, "predictions": answers}
    (path / files.evaluation("validation")).write_text(json.dumps(report))
    assert read(path).answers == answers
    (path / files.evaluation("validation")).write_text(json.dumps(report | {"step": 6}))
    assert read(path).answers == []
