from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.comparison.quantities import find_quantity
from seqfit.comparison.records import Candidate, Comparison, Figure, Prediction, Trial, dump_predictions
from seqfit.comparison.results import collect_comparison
from seqfit.comparison.tables import (
    build_measured,
    build_predicted,
    format_change,
    format_mean,
    format_terminal,
    list_by_weight,
    list_notes,
    list_targets,
)
from tests.comparison.made_runs import BASELINE, FP16, MATRIX, RECOMPUTE, add_end, add_trial, make_folder, play

DDP2 = Candidate("ddp2", ("strategy.parallel=ddp",), "lossless", processes=2, unavailable="there is one GPU")
PREDICTIONS = [
    Prediction("baseline", "this machine", 2**30, 0.4, 300.0, True),
    Prediction("recompute", "this machine", 2**29, 0.5, 240.0, True),
    Prediction("baseline", "Tesla V100", 2**31, 0.02, 6000.0, True),
    Prediction("fp16", "Tesla V100", 2**30, 0.01, 12000.0, False, "it takes 1.0 GiB more than there is"),
    Prediction("ddp2", "2 x Tesla V100", 2**31, 0.012, 10000.0, True),
]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Recompute is 20% slower; fp16 is out of memory; two GPUs are not here."""
    matrix = replace(MATRIX, candidates=(BASELINE, RECOMPUTE, FP16, DDP2))
    folder = make_folder(tmp_path_factory.mktemp("made"), matrix)
    for repeat, noise in enumerate((1.0, 1.004, 0.997)):
        add_trial(folder, BASELINE, repeat=repeat)
        add_trial(folder, RECOMPUTE, repeat=repeat, factor=1.2 * noise, resident_bytes=2**29)
        add_end(folder, Trial("fp16", 0, repeat), "out_of_memory", "OOM at step 1")
    dump_predictions(PREDICTIONS, folder)
    return collect_comparison(folder)


def test_every_candidate_has_one_row_ranked_by_time_and_what_is_predicted_says_so(comparison: Comparison) -> None:
    table = build_measured(comparison, ["step_seconds", "resident_bytes", "accuracy"])
    assert [column.heading for column in table.columns] == [
        *("candidate", "kind", "time per step: mean", "time per step: % of baseline", "resident memory: mean"),
        *("resident memory: % of baseline", "accuracy: mean", "accuracy: difference"),
    ]
    fp16, ddp, baseline, recompute = table.rows
    assert fp16 == ("fp16", "lossy", "10 ms of 20 ms", "50% predicted", "-", "-", "-", "-")
    assert ddp[:4] == ("ddp2", "lossless", "12 ms of 20 ms", "60% predicted")
    assert baseline == ("baseline", "baseline", "500 ms", "", "1 GiB", "", "90.00", "")
    assert recompute[:3] == ("recompute", "lossless", "600 ms")
    assert recompute[3].startswith("120% (119 to 121")
    assert recompute[4:] == ("512 MiB", "50%", "90.00", "+0.00 ≈")


def test_the_most_important_quantities_come_first(comparison: Comparison) -> None:
    first = ["step_seconds", "resident_bytes", "accuracy", "tokens_per_second", "final_loss"]
    assert list_by_weight(comparison)[:5] == first


def test_predicted_columns_are_labelled_and_apart_from_measured_ones(comparison: Comparison) -> None:
    assert list_targets(comparison) == ["this machine", "Tesla V100"]
    here = build_predicted(comparison, "this machine")
    groups = {column.group for column in here.columns}
    assert groups == {"", "peak memory", "time per step", "tokens/s", "measured"}
    assert [column.label for column in here.columns].count("predicted") == 3
    assert here.rows[1] == (
        *("recompute", "lossless", "512 MiB", "50%", "500 ms", "125%", "240", "yes"),
        *("512 MiB", "600 ms"),
    )
    assert here.rows[2] == ("fp16", "lossy", *["-"] * 6, "out of memory", "out of memory")


def test_the_table_of_another_gpu_has_no_measurements(comparison: Comparison) -> None:
    there = build_predicted(comparison, "Tesla V100")
    assert there.title == "Predicted for Tesla V100 (not measured)"
    assert "measured" not in {column.group for column in there.columns}
    assert there.rows[2] == ("fp16", "lossy", "1 GiB", "50%", "10 ms", "50%", "12K", "no")
    assert there.rows[3] == ("ddp2", "lossless", "2 GiB", "100%", "12 ms", "60%", "10K", "yes")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_nothing_is_wider_than_the_terminal(comparison: Comparison, width: int) -> None:
    text = format_terminal(comparison, width=width)
    assert max(map(len, text.splitlines())) <= width
    for candidate in comparison.matrix.candidates:
        assert candidate.name in text


def test_a_hundred_and_ten_columns_show_time_memory_and_quality_together(comparison: Comparison) -> None:
    lines = format_terminal(comparison, width=110).splitlines()
    heads = [line for line in lines if "step" in line and "resident" in line and "accuracy" in line]
    assert heads
    assert any(line.startswith("recompute") and "120% (" in line and "50%" in line for line in lines)


def test_long_names_are_truncated_on_a_narrow_terminal(comparison: Comparison) -> None:
    long = replace(BASELINE, name="baseline-with-a-very-long-name-indeed-of-fifty-letters")
    first, *others = comparison.results
    named = replace(comparison, results=(replace(first, candidate=long), *others))
    assert max(map(len, format_terminal(named, width=40).splitlines())) <= 40


def test_an_unfair_comparison_says_so_before_anything_else(comparison: Comparison) -> None:
    wrong = replace(comparison.checks[0], same=False, detail="fp16: train.steps is 3, not 12")
    text = format_terminal(replace(comparison, checks=(wrong, *comparison.checks[1:])), width=100)
    assert text.splitlines()[2].startswith("NOT A FAIR COMPARISON. same recipe: fp16: train.steps is 3")
    assert "NOT A FAIR" not in format_terminal(comparison, width=100)


def test_notes_say_why_something_is_absent(comparison: Comparison) -> None:
    text = " ".join(format_terminal(comparison, width=400).split())
    assert "fp16: out of memory: OOM at step 1" in text
    assert "ddp2: not available here: there is one GPU" in text
    assert "not measured: GPU busy, energy, GPU temperature (no driver)" in text
    assert "fp16 on Tesla V100: it takes 1.0 GiB more than there is" in text
    assert "fp16 is lossy: fp16" in text


def test_a_comparison_without_a_finished_trial_can_be_shown(tmp_path: Path) -> None:
    text = format_terminal(collect_comparison(make_folder(tmp_path)), width=80)
    assert "No measurements can be compared: there are none." in text
    assert "Missing: repeats (all have 0 of 3)." in text
    assert "1 seed x 0 of 3 repeats" in " ".join(text.split())


def test_the_repeats_of_a_heading_are_those_that_were_run(comparison: Comparison) -> None:
    assert comparison.repeats == "3 repeats"
    shorter = tuple(replace(result, trials=min(result.trials, 1)) for result in comparison.results)
    assert replace(comparison, results=shorter).repeats == "1 of 3 repeats"


def test_scaling_efficiency_has_a_column_where_there_is_one(tmp_path: Path) -> None:
    two = replace(DDP2, unavailable="")
    comparison = collect_comparison(play(tmp_path, replace(MATRIX, candidates=(BASELINE, two)), ddp2=0.625))
    table = build_measured(comparison, ["step_seconds"])
    assert table.columns[-1].heading == "scaling: efficiency"
    assert [row[-1] for row in table.rows] == ["80.1%", "-"]


def test_marks_tell_what_is_not_significant_from_change_and_from_what_is_unknown() -> None:
    step, baseline = find_quantity("step_seconds"), Figure((1.0,), 1.0, None)
    figure = Figure((1.05,), 1.05, None, 0.05, 0.02, 0.08)
    assert format_change(step, replace(figure, is_significant=False), baseline) == "105% (102 to 108) ≈"
    assert format_change(step, replace(figure, is_significant=True), baseline) == "105% (102 to 108)"
    assert format_change(step, Figure((1.05,), 1.05, None, 0.05), baseline) == "105% ?"
    assert format_change(step, Figure((1.0,), 1.0, None), baseline) == "-"
    assert format_change(step, baseline, baseline) == ""
    assert (
        format_change(find_quantity("accuracy"), replace(figure, mean=1.5, is_significant=False), baseline) == "+0.50 ≈"
    )


def test_scores_of_several_seeds_have_their_standard_deviation() -> None:
    assert format_mean(find_quantity("step_seconds"), Figure((0.4, 0.5), 0.45, 0.045)) == "450 ms"
    assert format_mean(find_quantity("accuracy"), Figure((90.0, 91.0), 90.5, 0.7)) == "90.50 ± 0.70"


def test_a_note_says_of_which_batches_predicted_and_measured_memory_are(comparison: Comparison) -> None:
    said = [note for note in list_notes(comparison) if "the largest batch in the data" in note]
    assert len(said) == 1
    assert said[0].endswith(f"measured: of {comparison.matrix.steps} steps")
    elsewhere = [replace(one, predictions=()) for one in comparison.results]
    assert not any("largest batch" in note for note in list_notes(replace(comparison, results=elsewhere)))
