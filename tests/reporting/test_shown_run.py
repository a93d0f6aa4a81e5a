from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.reporting.runs import ShownRun, best_of, format_run_score, is_higher_better, value_of
from seqfit.rundir import RunWriter, files


def test_a_finished_run_is_whole_but_for_telemetry(run_path: Path) -> None:
    run = ShownRun(run_path)
    assert run.state == "finished"
    assert run.gaps == ["no telemetry: telemetry.jsonl is missing"]


def test_a_run_that_says_running_with_nobody_writing_it_has_died(
    run_path: Path, edit_manifest: Callable[..., None]
) -> None:
    edit_manifest(run_path, status="running")
    run = ShownRun(run_path)
    assert run.state == "died"
    assert "no process writes the run" in run.gaps[0]
    assert f"seqfit train {run_path} --resume" in run.gaps[0]


def test_a_run_whose_lock_is_held_is_running(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, status="running")
    writer = RunWriter.reopen(run_path)
    try:
        assert ShownRun(run_path).state == "running"
    finally:
        writer.close()


def test_telemetry_that_was_switched_off_is_reported_as_such(run_path: Path) -> None:
    (run_path / files.STRATEGY).write_text("telemetry_hz: 0\n")
    assert "no telemetry: strategy.telemetry_hz is 0" in ShownRun(run_path).gaps


@pytest.mark.parametrize("name", [files.RECIPE, files.STRATEGY])
@pytest.mark.parametrize("content", [None, "{", "- 1\n- 2\n", "\x00"])
def test_a_missing_recipe_or_strategy_is_reported(name: str, content: str | None, run_path: Path) -> None:
    if content is None:
        (run_path / name).unlink()
    else:
        (run_path / name).write_text(content)
    assert f"{name} is missing or can't be read" in ShownRun(run_path).gaps


def test_without_a_recipe_the_first_score_counts(run_path: Path) -> None:
    assert ShownRun(run_path).score == "f1"
    (run_path / files.RECIPE).unlink()
    assert ShownRun(run_path).score == "f1"
    (run_path / files.EVALUATIONS).unlink()
    assert ShownRun(run_path).score == "loss"


def test_a_page_shows_one_moment_of_a_run_that_goes_on(run_path: Path) -> None:
    run = ShownRun(run_path)
    before = len(run.steps())
    with open(run_path / files.STEPS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({**run.steps()[-1], "step": 402}) + "\n")
    assert len(run.steps()) == before
    assert len(ShownRun(run_path).steps()) == before + 1


def test_a_split_that_was_evaluated_afterwards_is_no_part_of_training(run_path: Path) -> None:
    record = {
        "step": 400,
        "split": "test",
        "loss": 1.0,
        "scores": {"f1": 67.9},
        "rows": 61,
        "seconds": 1.0,
        "time": 1.0,
    }
    with open(run_path / files.EVALUATIONS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
    assert list(ShownRun(run_path).by_split) == ["validation"]


def test_validation_that_was_evaluated_again_afterwards_is_no_part_of_training(run_path: Path) -> None:
    run = ShownRun(run_path)
    with open(run_path / files.EVALUATIONS, "a", encoding="utf-8") as stream:
        stream.write(
            "".join(json.dumps({**run.evaluations()[-1], "step": step, "time": 9e9}) + "\n" for step in (320, 400))
        )
    again = ShownRun(run_path)
    assert len(again.evaluations()) == 8
    assert again.by_split == run.by_split


@pytest.mark.parametrize("name", [files.evaluation("test", before=True), "profile/summary.json"])
def test_corrupted_files_of_other_commands_are_named(name: str, run_path: Path) -> None:
    (run_path / name).parent.mkdir(exist_ok=True)
    (run_path / name).write_text("{")
    assert any(gap.startswith(f"{name} can't be read") for gap in ShownRun(run_path).gaps)


def test_the_best_of_a_loss_is_the_lowest_and_of_an_unknown_score_the_highest() -> None:
    records = [
        {"loss": 2.0, "scores": {"own": 1.0}},
        {"loss": 1.0, "scores": {"own": 0.5}},
        {"loss": None, "scores": {}},
    ]
    assert best_of(records, "loss") == records[1]
    assert best_of(records, "own") == records[0]
    assert best_of(records, "absent") is None
    assert is_higher_better("own")


def test_values_are_fields_or_scores() -> None:
    assert value_of({"loss": 1, "scores": {"f1": 2}}, "loss") == 1.0
    assert value_of({"loss": 1, "scores": {"f1": 2}}, "f1") == 2.0
    assert value_of({"scores": "damaged"}, "f1") is None
    assert (format_run_score(0.12345, "loss"), format_run_score(67.89, "f1"), format_run_score(None, "f1")) == (
        "0.123",
        "67.9",
        "–",
    )
