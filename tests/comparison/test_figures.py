from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.comparison.collect import measure_trial, read_trial
from seqfit.comparison.quantities import find_quantity
from seqfit.comparison.records import Figure, Matrix, read_outcomes
from seqfit.comparison.statistics import CandidateFigures, MeasuredTrial
from seqfit.rundir import files
from tests.comparison.made_runs import BASELINE, FP16, MATRIX, RECOMPUTE, add_trial, make_folder, play, several


def figures_of(folder: Path, name: str, matrix: Matrix = MATRIX) -> dict[str, Figure]:
    runs = [read_trial(folder, outcome) for outcome in read_outcomes(folder)]
    trials = [MeasuredTrial(run, measure_trial(run, matrix.warm_up)) for run in runs]
    candidate = next(candidate for candidate in matrix.candidates if candidate.name == name)
    return CandidateFigures(matrix, trials).of(candidate)


def test_a_slowdown_beyond_noise_is_found_and_its_interval_holds_it(tmp_path: Path) -> None:
    figure = figures_of(play(tmp_path, recompute=1.2), "recompute")["step_seconds"]
    assert figure.change == pytest.approx(0.2, abs=0.01)
    assert figure.change_low is not None
    assert figure.change_high is not None
    assert figure.change_low < 0.2 < figure.change_high
    assert figure.is_significant is True
    assert len(figure.values) == 3


def test_the_same_speed_is_not_significant(tmp_path: Path) -> None:
    figure = figures_of(play(tmp_path), "recompute")["step_seconds"]
    assert figure.is_significant is False
    assert figure.change == pytest.approx(0.0, abs=0.01)


def test_the_reference_is_compared_with_nothing(tmp_path: Path) -> None:
    figure = figures_of(play(tmp_path), "baseline")["step_seconds"]
    assert (figure.change, figure.is_significant) == (None, None)
    assert figure.spread is not None


def test_a_step_that_was_disturbed_in_one_trial_changes_little(tmp_path: Path) -> None:
    make_folder(tmp_path)
    disturbed = [1.0] * 5 + [9.0] * 2 + [1.0] * 5
    for repeat in range(3):
        add_trial(tmp_path, BASELINE, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat, factor=disturbed)
    figure = figures_of(tmp_path, "recompute")["step_seconds"]
    assert figure.change == pytest.approx(0.0)
    assert figure.mean == pytest.approx(figures_of(tmp_path, "baseline")["step_seconds"].mean)


def test_a_trial_whose_partner_is_missing_is_in_no_pair(tmp_path: Path) -> None:
    make_folder(tmp_path)
    for repeat in range(2):
        add_trial(tmp_path, BASELINE, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat, factor=1.1)
    add_trial(tmp_path, RECOMPUTE, repeat=2, factor=3.0)
    figure = figures_of(tmp_path, "recompute")["step_seconds"]
    assert len(figure.values) == 3
    assert figure.change == pytest.approx(0.1)
    assert figure.mean == pytest.approx(1.1 * figures_of(tmp_path, "baseline")["step_seconds"].mean)


def slow_machine(path: Path, factor: float) -> None:
    """The machine was slower by so much: steps take longer, and so does the calibration workload between them."""
    lines = [json.loads(line) for line in (path / files.STEPS).read_text().splitlines()]
    slower = [
        line
        | {"step_seconds": factor * line["step_seconds"], "calibration_seconds": factor / 100}
        | {"tokens_per_second": line["tokens_per_second"] / factor}
        for line in lines
    ]
    (path / files.STEPS).write_text("".join(json.dumps(line) + "\n" for line in slower))


def test_a_disturbed_machine_is_corrected_for_and_every_percentage_is_the_ratio_of_two_printed_numbers(
    tmp_path: Path,
) -> None:
    """2.9 s against 2.4 s were printed as 134.7%, and tokens/s as not significant."""
    matrix = several(repeats=5)
    make_folder(tmp_path, matrix)
    for repeat, slow in enumerate((1.0, 1.3, 1.0, 1.4, 1.05)):
        slow_machine(add_trial(tmp_path, BASELINE, repeat=repeat, factor=1.0 + repeat / 500), 1.0)
        slow_machine(add_trial(tmp_path, RECOMPUTE, repeat=repeat, factor=1.2), slow)
    baseline, recompute = (figures_of(tmp_path, name, matrix) for name in ("baseline", "recompute"))
    step, rate = recompute["step_seconds"], recompute["tokens_per_second"]
    assert step.change == pytest.approx(0.2, abs=0.01)
    assert (step.is_significant, rate.is_significant) == (True, True)
    for name in ("step_seconds", "tokens_per_second", "resident_bytes"):
        ratio = recompute[name].mean / baseline[name].mean
        assert 1 + (recompute[name].change or 0.0) == pytest.approx(ratio)
        quantity = find_quantity(name)
        ours, theirs = (float(quantity.format(one[name].mean).split()[0]) for one in (recompute, baseline))
        assert ours / theirs == pytest.approx(ratio, abs=0.011)  # as a reader counts it
    assert rate.mean / baseline["tokens_per_second"].mean == pytest.approx(baseline["step_seconds"].mean / step.mean)
    assert rate.change_low == pytest.approx(1 / (1 + (step.change_high or 0.0)) - 1)


def test_what_is_not_significant_says_how_many_repeats_it_would_take(tmp_path: Path) -> None:
    matrix = several(repeats=3)
    make_folder(tmp_path, matrix)
    for repeat, slower in enumerate((1.10, 0.98, 1.07)):
        add_trial(tmp_path, BASELINE, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat, factor=slower)
    figure = figures_of(tmp_path, "recompute", matrix)["step_seconds"]
    assert (figure.is_significant, figure.needed, figure.needed_of) == (False, 9, "repeats")


def test_bytes_of_tensors_are_known_from_one_repeat(tmp_path: Path) -> None:
    matrix = several(repeats=2)
    make_folder(tmp_path, matrix)
    for repeat in range(2):
        for candidate, peak in ((BASELINE, 2**30), (RECOMPUTE, 2**29)):
            watched = {"measured_peak_bytes": None if repeat else peak, "peak_is_of_all_steps": True}
            add_trial(tmp_path, candidate, repeat=repeat, manifest={"prediction": watched})
    figure = figures_of(tmp_path, "recompute", matrix)["allocated_bytes"]
    assert (figure.change, figure.change_low, figure.is_significant) == (-0.5, -0.5, True)


def test_with_one_repeat_noise_is_unknown(tmp_path: Path) -> None:
    matrix = several(repeats=1)
    figure = figures_of(play(tmp_path, matrix, recompute=1.5), "recompute", matrix)["step_seconds"]
    assert figure.change == pytest.approx(0.5, abs=0.02)
    assert (figure.is_significant, figure.change_low, figure.spread) == (None, None, None)


def test_repeats_of_a_seed_are_one_training(tmp_path: Path) -> None:
    matrix = several(seeds=2, repeats=2)
    make_folder(tmp_path, matrix)
    for repeat in range(2):
        for seed in range(2):
            add_trial(tmp_path, BASELINE, seed, repeat, accuracy=90.0 + seed)
            add_trial(tmp_path, FP16, seed, repeat, accuracy=80.0 + seed, loss=0.1)
    figure = figures_of(tmp_path, "fp16", matrix)["accuracy"]
    assert len(figure.values) == 4
    assert (figure.mean, figure.spread) == (80.5, pytest.approx(0.7071, abs=1e-4))


def test_a_lossless_candidate_with_the_reference_losses_has_the_same_quality(tmp_path: Path) -> None:
    matrix = several(repeats=1)
    make_folder(tmp_path, matrix)
    add_trial(tmp_path, BASELINE)
    add_trial(tmp_path, RECOMPUTE, loss=2e-5)
    add_trial(tmp_path, FP16, loss=0.2, accuracy=60.0)
    assert figures_of(tmp_path, "recompute", matrix)["final_loss"].is_significant is False
    assert figures_of(tmp_path, "fp16", matrix)["final_loss"].is_significant is None
    assert figures_of(tmp_path, "fp16", matrix)["accuracy"].is_significant is None


def test_an_accuracy_on_a_hundred_rows_is_no_better_known_than_they_allow(tmp_path: Path) -> None:
    matrix = several(seeds=3, repeats=1)
    make_folder(tmp_path, matrix)
    for seed in range(3):
        add_trial(tmp_path, BASELINE, seed, accuracy=90.0)
        add_trial(tmp_path, FP16, seed, accuracy=86.0, loss=0.1)
    figure = figures_of(tmp_path, "fp16", matrix)["accuracy"]
    assert figure.is_significant is False  # all three seeds agree, and 4 points of 100 rows are still chance
    assert figure.change_low == pytest.approx((-4 - 1.96 * 4.58) / 90, abs=1e-3)


def keep_answers(run: Path, right: int) -> None:
    answers = [{"references": ["a"], "prediction": "a" if row < right else "b"} for row in range(100)]
    report = {"split": "validation", "step": 12, "predictions": answers}
    (run / files.evaluation("validation")).write_text(json.dumps(report))


def test_kept_answers_show_more_than_the_number_of_rows(tmp_path: Path) -> None:
    matrix = replace(several(seeds=3, repeats=1), candidates=(BASELINE, FP16))
    make_folder(tmp_path, matrix)
    for seed in range(3):
        keep_answers(add_trial(tmp_path, BASELINE, seed, accuracy=90.0), right=90)
        keep_answers(add_trial(tmp_path, FP16, seed, accuracy=84.0, loss=0.1), right=84)
    figure = figures_of(tmp_path, "fp16", matrix)["accuracy"]
    assert figure.is_significant is True  # it lost six rows and won none
