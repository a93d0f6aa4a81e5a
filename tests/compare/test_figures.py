from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.compare.collect import measure, read_trial
from seqfit.compare.figures import Figures, MeasuredTrial
from seqfit.compare.folder import read_outcomes
from seqfit.compare.records import Figure, Matrix
from seqfit.rundir import files
from tests.compare.made_runs import FP16, MATRIX, RECOMPUTE, VANILLA, add_trial, make_folder, play, several


def figures_of(folder: Path, name: str, matrix: Matrix = MATRIX) -> dict[str, Figure]:
    runs = [read_trial(folder, outcome) for outcome in read_outcomes(folder)]
    trials = [MeasuredTrial(run, measure(run, matrix.warm_up)) for run in runs]
    entrant = next(entrant for entrant in matrix.entrants if entrant.name == name)
    return Figures(matrix, trials).of(entrant)


def test_a_slowdown_beyond_noise_is_found_and_its_interval_holds_it(tmp_path: Path) -> None:
    figure = figures_of(play(tmp_path, recompute=1.2), "recompute")["step_seconds"]
    assert figure.change == pytest.approx(0.2, abs=0.01)
    assert figure.change_low is not None
    assert figure.change_high is not None
    assert figure.change_low < 0.2 < figure.change_high
    assert figure.within_noise is False
    assert len(figure.values) == 3


def test_the_same_speed_is_within_noise(tmp_path: Path) -> None:
    figure = figures_of(play(tmp_path), "recompute")["step_seconds"]
    assert figure.within_noise is True
    assert figure.change == pytest.approx(0.0, abs=0.01)


def test_the_reference_is_compared_with_nothing(tmp_path: Path) -> None:
    figure = figures_of(play(tmp_path), "vanilla")["step_seconds"]
    assert (figure.change, figure.within_noise) == (None, None)
    assert figure.spread is not None


def test_a_step_that_was_disturbed_in_one_trial_changes_little(tmp_path: Path) -> None:
    make_folder(tmp_path)
    disturbed = [1.0] * 5 + [9.0] * 2 + [1.0] * 5
    for repeat in range(3):
        add_trial(tmp_path, VANILLA, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat, factor=disturbed)
    figures = figures_of(tmp_path, "recompute")
    assert figures["step_seconds"].change == pytest.approx(0.0)
    assert (figures["total_seconds"].change or 0) > 1


def test_a_trial_whose_partner_is_missing_is_in_the_mean_and_in_no_pair(tmp_path: Path) -> None:
    make_folder(tmp_path)
    for repeat in range(2):
        add_trial(tmp_path, VANILLA, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat, factor=1.1)
    add_trial(tmp_path, RECOMPUTE, repeat=2, factor=3.0)
    figure = figures_of(tmp_path, "recompute")["step_seconds"]
    assert len(figure.values) == 3
    assert figure.change == pytest.approx(0.1)


def test_with_one_round_noise_is_unknown(tmp_path: Path) -> None:
    matrix = several(repeats=1)
    figure = figures_of(play(tmp_path, matrix, recompute=1.5), "recompute", matrix)["step_seconds"]
    assert figure.change == pytest.approx(0.5, abs=0.02)
    assert (figure.within_noise, figure.change_low, figure.spread) == (None, None, None)


def test_repeats_of_a_seed_are_one_training(tmp_path: Path) -> None:
    matrix = several(seeds=2, repeats=2)
    make_folder(tmp_path, matrix)
    for repeat in range(2):
        for seed in range(2):
            add_trial(tmp_path, VANILLA, seed, repeat, accuracy=90.0 + seed)
            add_trial(tmp_path, FP16, seed, repeat, accuracy=80.0 + seed, loss=0.1)
    figure = figures_of(tmp_path, "fp16", matrix)["accuracy"]
    assert len(figure.values) == 4
    assert (figure.mean, figure.spread) == (80.5, pytest.approx(0.7071, abs=1e-4))


def test_a_lossless_entrant_with_the_reference_losses_has_the_same_quality(tmp_path: Path) -> None:
    matrix = several(repeats=1)
    make_folder(tmp_path, matrix)
    add_trial(tmp_path, VANILLA)
    add_trial(tmp_path, RECOMPUTE, loss=2e-5)
    add_trial(tmp_path, FP16, loss=0.2, accuracy=60.0)
    assert figures_of(tmp_path, "recompute", matrix)["final_loss"].within_noise is True
    assert figures_of(tmp_path, "fp16", matrix)["final_loss"].within_noise is None
    assert figures_of(tmp_path, "fp16", matrix)["accuracy"].within_noise is None


def test_an_accuracy_on_a_hundred_rows_is_no_better_known_than_they_allow(tmp_path: Path) -> None:
    matrix = several(seeds=3, repeats=1)
    make_folder(tmp_path, matrix)
    for seed in range(3):
        add_trial(tmp_path, VANILLA, seed, accuracy=90.0)
        add_trial(tmp_path, FP16, seed, accuracy=86.0, loss=0.1)
    figure = figures_of(tmp_path, "fp16", matrix)["accuracy"]
    assert figure.within_noise is True  # all three seeds agree, and 4 points of 100 rows are still chance
    assert figure.change_low == pytest.approx((-4 - 1.96 * 4.58) / 90, abs=1e-3)


def keep_answers(run: Path, right: int) -> None:
    answers = [{"references": ["a"], "prediction": "a" if row < right else "b"} for row in range(100)]
    report = {"split": "validation", "step": 12, "predictions": answers}
    (run / files.evaluation("validation")).write_text(json.dumps(report))


def test_kept_answers_show_more_than_the_number_of_rows(tmp_path: Path) -> None:
    matrix = replace(several(seeds=3, repeats=1), entrants=(VANILLA, FP16))
    make_folder(tmp_path, matrix)
    for seed in range(3):
        keep_answers(add_trial(tmp_path, VANILLA, seed, accuracy=90.0), right=90)
        keep_answers(add_trial(tmp_path, FP16, seed, accuracy=84.0, loss=0.1), right=84)
    figure = figures_of(tmp_path, "fp16", matrix)["accuracy"]
    assert figure.within_noise is False  # it lost six rows and won none
