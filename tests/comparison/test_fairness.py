from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.collect import read_trial
from seqfit.comparison.fairness import check_equality
from seqfit.comparison.records import Candidate, FairnessCheck, Matrix, Trial, add_outcome, read_outcomes
from seqfit.rundir import files
from tests.comparison.made_runs import (
    BASELINE,
    FP16,
    HARDWARE,
    MATRIX,
    RECOMPUTE,
    add_end,
    add_trial,
    make_folder,
    play,
)

PAIR = replace(MATRIX, candidates=(BASELINE, RECOMPUTE), repeats=1)
SHORT = Candidate("short", ("task.max_source_tokens=8", "strategy.name=short"), "different", "task.max_source_tokens=8")


def check(folder: Path, matrix: Matrix = PAIR) -> dict[str, FairnessCheck]:
    outcomes = read_outcomes(folder)
    runs = [read_trial(folder, outcome) for outcome in outcomes if outcome.state == "finished"]
    return {line.name: line for line in check_equality(matrix, outcomes, runs)}


def differ(folder: Path, candidate: Candidate = RECOMPUTE, **made: Any) -> list[str]:
    """The lines that fail for a pair of which the second was made so."""
    make_folder(folder, PAIR)
    add_trial(folder, BASELINE)
    add_trial(folder, candidate, **made)
    matrix = replace(PAIR, candidates=(BASELINE, candidate))
    return [name for name, line in check(folder, matrix).items() if not line.same]


def test_trials_that_are_alike_pass_every_line(tmp_path: Path) -> None:
    lines = check(play(tmp_path, recompute=1.3), MATRIX)
    assert all(line.same for line in lines.values()), lines
    assert lines["same data order"].detail.startswith("9 runs: ")
    assert lines["losses of lossless candidates"].detail == "recompute differs by 0.0e+00 at most (step 12, seed 0)"


def test_without_a_finished_trial_there_is_nothing_to_check(tmp_path: Path) -> None:
    assert check(make_folder(tmp_path)) == {}


@pytest.mark.parametrize(
    ("made", "failing"),
    [
        ({"recipe": {"model": {"name": "another", "dropout": 0.0}}}, ["same recipe"]),
        ({"recipe": {"train": {"batch_examples": 16, "steps": 12}}}, ["same recipe", "same global batch"]),
        ({"manifest": {"data": {"fingerprint": "other"}}}, ["same data"]),
        ({"tokens": 99}, ["same data order"]),
        ({"steps": 11}, ["same number of steps"]),
        ({"manifest": {"versions": {"torch": "2.12.0"}}}, ["same versions and machine"]),
        ({"manifest": {"hardware": HARDWARE | {"threads": 1}}}, ["same versions and machine"]),
        ({"events": [("out-of-memory", "smaller micro-batches")]}, ["no recovery"]),
        ({"events": [("non-finite", "step 3 is skipped")]}, ["no recovery"]),
        ({"events": [("fallback", "padded batches")]}, ["no recovery"]),
        ({"events": [("compile", "4 blocks")]}, []),
        ({"loss": 2e-4}, ["losses of lossless candidates"]),
        ({"loss": 5e-5}, []),
    ],
)
def test_each_way_to_be_unequal_is_found_by_its_line(tmp_path: Path, made: dict[str, Any], failing: list[str]) -> None:
    assert differ(tmp_path, **made) == failing


def test_what_differs_is_reported_with_both_values(tmp_path: Path) -> None:
    make_folder(tmp_path, PAIR)
    add_trial(tmp_path, BASELINE)
    add_trial(tmp_path, RECOMPUTE, recipe={"train": {"batch_examples": 16, "steps": 12}})
    assert check(tmp_path)["same recipe"].detail == "recompute, seed 0, repeat 0: train.batch_examples is 16, not 8"


def test_a_candidates_own_overrides_are_no_difference(tmp_path: Path) -> None:
    assert differ(tmp_path, FP16, recipe={"strategy": {"name": "fp16", "precision": "fp16", "threads": 2}}) == []


def test_a_field_of_the_strategy_that_nobody_overrides_is_one(tmp_path: Path) -> None:
    strategy = {"name": "recompute", "recompute": "blocks", "threads": 2, "prefetch": 9}
    assert differ(tmp_path, recipe={"strategy": strategy}) == ["same recipe"]


def test_a_different_recipe_may_have_other_data(tmp_path: Path) -> None:
    task = {"name": "classify", "language": "en", "max_source_tokens": 8}
    made = {"tokens": 8, "manifest": {"data": {"fingerprint": "short"}}, "recipe": {"task": task}, "loss": 0.3}
    assert differ(tmp_path, SHORT, **made) == []


def test_processes_share_the_threads(tmp_path: Path) -> None:
    ddp = Candidate("ddp2", ("strategy.parallel=ddp", "strategy.name=ddp2"), "lossless", processes=2)
    made = {"manifest": {"hardware": HARDWARE | {"threads": 1}}}
    made["recipe"] = {"strategy": {"name": "ddp2", "threads": 1, "parallel": "ddp"}}
    assert differ(tmp_path, ddp, **made) == []


def test_a_fallback_that_all_share_leaves_them_equal(tmp_path: Path) -> None:
    make_folder(tmp_path, PAIR)
    for candidate in PAIR.candidates:
        add_trial(tmp_path, candidate, events=[("fallback", "padded batches, grouped by length")])
    assert check(tmp_path)["no recovery"].same


def test_with_dropout_losses_are_reported_and_not_judged(tmp_path: Path) -> None:
    make_folder(tmp_path, PAIR)
    for candidate, loss in ((BASELINE, 0.0), (RECOMPUTE, 0.02)):
        add_trial(tmp_path, candidate, loss=loss, recipe={"model": {"name": "a/model"}})
    line = check(tmp_path)["losses of lossless candidates"]
    assert line.same
    assert "2.0e-02" in line.detail
    assert "not comparable" in line.detail


def test_how_far_a_lossy_candidate_is_is_reported(tmp_path: Path) -> None:
    matrix = replace(PAIR, candidates=(BASELINE, FP16))
    make_folder(tmp_path, matrix)
    add_trial(tmp_path, BASELINE)
    add_trial(tmp_path, FP16, loss=0.03)
    line = check(tmp_path, matrix)["losses of lossy candidates"]
    assert (line.same, line.detail) == (True, "fp16 differs by 3.0e-02 at most (step 12)")


def test_one_candidate_after_the_other_is_no_turn_taking(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats=3)
    make_folder(tmp_path, matrix)
    for candidate in matrix.candidates:
        for repeat in range(3):
            add_trial(tmp_path, candidate, repeat=repeat)
    line = check(tmp_path, matrix)["candidates took turns"]
    assert not line.same
    assert "baseline had run 2 times, another 0" in line.detail


def test_repeats_may_go_backwards(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats=3)
    make_folder(tmp_path, matrix)
    for repeat in range(3):
        for candidate in reversed(matrix.candidates) if repeat % 2 else matrix.candidates:
            add_trial(tmp_path, candidate, repeat=repeat)
    assert check(tmp_path, matrix)["candidates took turns"].detail == "3 repeats of 2 candidates"


def test_repeats_that_are_jobs_go_on_side_by_side_and_take_turns_within_each(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats=2, repeats_are_jobs=True)
    make_folder(tmp_path, matrix)
    for candidate in matrix.candidates:
        for repeat in range(2):
            add_trial(tmp_path, candidate, repeat=repeat, manifest={"hardware": HARDWARE | {"name": f"n{repeat}"}})
    lines = check(tmp_path, matrix)
    assert lines["candidates took turns"].detail == "2 repeats, the trials of each one after another"
    assert lines["same versions and machine"].detail.endswith("total threads, within each repeat")
    assert all(line.same for line in lines.values())
    assert not check(tmp_path, replace(matrix, repeats_are_jobs=False))["same versions and machine"].same


def test_trials_of_a_repeat_that_overlap_or_have_other_machines_are_unequal(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats_are_jobs=True)
    make_folder(tmp_path, matrix)
    add_trial(tmp_path, BASELINE)
    add_trial(tmp_path, RECOMPUTE, manifest={"hardware": HARDWARE | {"name": "n2"}})
    assert not check(tmp_path, matrix)["same versions and machine"].same
    both = replace(read_outcomes(tmp_path)[1], seconds=90.0)
    add_outcome(both, tmp_path)
    line = check(tmp_path, matrix)["candidates took turns"]
    assert (line.same, line.detail) == (False, "seed 0, repeat 0: recompute began before baseline had ended")


@pytest.mark.parametrize("repeats_are_jobs", [False, True])
def test_trials_that_are_compared_ran_on_one_machine(tmp_path: Path, repeats_are_jobs: bool) -> None:
    matrix = replace(PAIR, repeats_are_jobs=repeats_are_jobs)
    make_folder(tmp_path, matrix)
    for candidate in matrix.candidates:
        add_trial(tmp_path, candidate)
    add_outcome(replace(read_outcomes(tmp_path)[1], node="n2"), tmp_path)
    line = check(tmp_path, matrix)["same versions and machine"]
    assert (line.same, line.detail) == (False, "recompute, seed 0, repeat 0 ran on n2")


def test_repeats_beside_each_other_on_one_machine_are_unequal(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats=2, repeats_are_jobs=True)
    make_folder(tmp_path, matrix)
    for candidate in matrix.candidates:
        for repeat in range(2):
            add_trial(tmp_path, candidate, repeat=repeat)
    for nodes, is_same in ((("n1", "n2"), True), (("n1", "n1"), False)):
        for outcome in read_outcomes(tmp_path):
            add_outcome(replace(outcome, node=nodes[outcome.repeat]), tmp_path)
        line = check(tmp_path, matrix)["candidates took turns"]
        assert line.same == is_same
    assert line.detail == "seed 0, repeat 1: ran at the same time as another repeat on n1"


def test_trials_still_to_come_are_no_inequality_and_broken_ones_are(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats=2)
    make_folder(tmp_path, matrix)
    for candidate in matrix.candidates:
        add_trial(tmp_path, candidate)
    line = check(tmp_path, matrix)["same seeds"]
    assert (line.same, line.detail) == (True, "seeds 0, 2 repeats each; 2 trials are missing")
    add_end(tmp_path, Trial("recompute", 0, 1), "failed", "it ended with code 1")
    line = check(tmp_path, matrix)["same seeds"]
    assert (line.same, line.detail) == (False, "recompute, seed 0, repeat 1: failed (it ended with code 1)")


def test_a_comparison_without_warm_up_is_not_equal(tmp_path: Path) -> None:
    make_folder(tmp_path, PAIR)
    for candidate in PAIR.candidates:
        add_trial(tmp_path, candidate)
    assert not check(tmp_path, replace(PAIR, warm_up=0))["warm-up excluded"].same


def test_missing_telemetry_is_reported_and_missing_steps_are_an_inequality(tmp_path: Path) -> None:
    make_folder(tmp_path, PAIR)
    add_trial(tmp_path, BASELINE)
    run = add_trial(tmp_path, RECOMPUTE)
    (run / files.TELEMETRY).unlink()
    line = check(tmp_path)["records are complete"]
    assert line.same
    assert "recompute: there is no telemetry.jsonl" in line.detail
    (run / files.STEPS).write_text("")
    assert not check(tmp_path)["records are complete"].same


def test_a_long_list_of_differences_is_shortened_and_counted(tmp_path: Path) -> None:
    matrix = replace(PAIR, repeats=5)
    make_folder(tmp_path, matrix)
    for repeat in range(5):
        add_trial(tmp_path, BASELINE, repeat=repeat)
        add_trial(tmp_path, RECOMPUTE, repeat=repeat, tokens=50)
    assert check(tmp_path, matrix)["same data order"].detail.endswith("; and 2 more")
