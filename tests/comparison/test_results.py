from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.comparison.records import (
    Candidate,
    CandidateResult,
    Comparison,
    Prediction,
    Trial,
    dump_predictions,
    read_results,
)
from seqfit.comparison.results import collect_comparison, write_results
from seqfit.rundir import files
from tests.comparison.made_runs import BASELINE, FP16, MATRIX, RECOMPUTE, add_end, add_trial, make_folder, play, several

DDP2 = Candidate("ddp2", ("strategy.parallel=ddp", "strategy.name=ddp2"), "lossless", processes=2)


def result(comparison: Comparison, name: str) -> CandidateResult:
    return next(one for one in comparison.results if one.candidate.name == name)


def test_a_finished_comparison_is_fair_and_says_who_is_slower(tmp_path: Path) -> None:
    comparison = collect_comparison(play(tmp_path, recompute=1.2))
    assert comparison.is_fair
    assert [one.state for one in comparison.results] == ["finished"] * 3
    assert result(comparison, "recompute").figures["step_seconds"].is_significant is True
    assert comparison.command == "seqfit compare demo --strategies classic"
    assert comparison.machine["hardware"]["cores"] == 2
    assert comparison.machine["absent"]["energy_joules"] == "no driver"


def test_the_reference_comes_first_wherever_it_was_named(tmp_path: Path) -> None:
    matrix = replace(MATRIX, candidates=(RECOMPUTE, BASELINE, FP16))
    comparison = collect_comparison(play(tmp_path, matrix))
    assert [one.candidate.name for one in comparison.results] == ["baseline", "recompute", "fp16"]


def test_a_comparison_that_has_only_begun_is_waiting(tmp_path: Path) -> None:
    comparison = collect_comparison(make_folder(tmp_path))
    assert [one.state for one in comparison.results] == ["waiting"] * 3
    assert comparison.checks == ()
    assert write_results(comparison)


def test_a_half_done_comparison_has_figures_of_what_is_done(tmp_path: Path) -> None:
    make_folder(tmp_path)
    for repeat in range(2):
        for candidate in MATRIX.candidates:
            add_trial(tmp_path, candidate, repeat=repeat)
    add_trial(tmp_path, BASELINE, repeat=2)
    comparison = collect_comparison(tmp_path)
    assert comparison.is_fair
    assert [one.state for one in comparison.results] == ["finished", "waiting", "waiting"]
    assert result(comparison, "fp16").reason == "2 of 3 trials have finished"
    assert result(comparison, "fp16").figures["step_seconds"].change == pytest.approx(0.0)


def test_out_of_memory_is_a_result(tmp_path: Path) -> None:
    make_folder(tmp_path)
    for repeat in range(3):
        add_trial(tmp_path, BASELINE, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat)
        add_end(tmp_path, Trial("fp16", 0, repeat), "out_of_memory", "out of memory at step 1")
    comparison = collect_comparison(tmp_path)
    found = result(comparison, "fp16")
    assert (found.state, found.reason, found.figures) == ("out_of_memory", "out of memory at step 1", {})
    assert comparison.is_fair
    assert "Missing: fp16 (out of memory)." in comparison.verdict


def test_a_trial_that_failed_among_others_is_reported_and_makes_it_unequal(tmp_path: Path) -> None:
    make_folder(tmp_path)
    for repeat in range(3):
        for candidate in MATRIX.candidates:
            if (candidate, repeat) == (FP16, 1):
                add_end(tmp_path, Trial("fp16", 0, 1), "failed", "it was ended by SIGSEGV")
            else:
                add_trial(tmp_path, candidate, repeat=repeat)
    comparison = collect_comparison(tmp_path)
    assert result(comparison, "fp16").state == "finished"
    assert result(comparison, "fp16").reason == "1 of 3 trials: failed, it was ended by SIGSEGV"
    assert not comparison.is_fair


def test_a_run_that_recovered_says_so(tmp_path: Path) -> None:
    matrix = several(repeats=1)
    make_folder(tmp_path, matrix)
    add_trial(tmp_path, BASELINE, events=[("out-of-memory", "smaller micro-batches")])
    comparison = collect_comparison(tmp_path)
    assert not comparison.is_fair


def test_what_is_impossible_is_predicted_and_never_measured(tmp_path: Path) -> None:
    unavailable = replace(FP16, unavailable="the CPU has no fp16")
    matrix = replace(MATRIX, candidates=(BASELINE, unavailable))
    make_folder(tmp_path, matrix)
    for repeat in range(3):
        add_trial(tmp_path, BASELINE, repeat=repeat)
    prediction = Prediction("fp16", "Tesla V100", 2**33, 0.2, 1e4, True)
    dump_predictions([prediction], tmp_path)
    found = result(collect_comparison(tmp_path), "fp16")
    assert (found.state, found.reason) == ("not_available", "the CPU has no fp16")
    assert (found.figures, found.predictions) == ({}, (prediction,))


def test_two_processes_that_are_1_6_times_as_fast_are_80_per_cent_efficient(tmp_path: Path) -> None:
    matrix = replace(MATRIX, candidates=(BASELINE, DDP2))
    comparison = collect_comparison(play(tmp_path, matrix, ddp2=1 / 1.6))
    assert result(comparison, "ddp2").scaling_efficiency == pytest.approx(0.8, abs=0.01)
    assert result(comparison, "baseline").scaling_efficiency is None


def test_damaged_runs_leave_the_others_and_are_reported(tmp_path: Path) -> None:
    folder = play(tmp_path, recompute=1.2)
    truncated = folder / "runs" / "recompute-seed0-repeat2" / files.STEPS
    truncated.write_text(truncated.read_text()[:-20])
    (folder / "runs" / "fp16-seed0-repeat0" / files.TELEMETRY).unlink()
    (folder / "runs" / "fp16-seed0-repeat1" / files.MANIFEST).unlink()
    with (folder / "outcomes.jsonl").open("a") as stream:
        stream.write('{"candidate": "va')
    comparison = collect_comparison(folder)
    assert result(comparison, "recompute").figures["step_seconds"].change == pytest.approx(0.2, abs=0.01)
    assert len(result(comparison, "fp16").figures["resident_bytes"].values) == 2
    assert comparison.machine["absent"]["resident_bytes"] == "there is no telemetry (fp16)"
    failing = [check.name for check in comparison.checks if not check.same]
    assert failing == ["same number of steps", "records are complete"]
    assert len(write_results(comparison)) == 4


def test_all_four_files_are_written_and_the_json_is_the_comparison(tmp_path: Path) -> None:
    comparison = collect_comparison(play(tmp_path))
    paths = write_results(comparison)
    assert [path.name for path in paths] == ["results.json", "results.csv", "results.md", "results.tex"]
    assert all(path.parent == tmp_path and path.stat().st_size > 100 for path in paths)
    assert read_results(tmp_path) == comparison
    lines = list(csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text("utf-8"))))
    assert {line["candidate"] for line in lines} == {"baseline", "recompute", "fp16"}
