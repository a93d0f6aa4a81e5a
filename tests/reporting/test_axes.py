from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.reporting.runs import ShownRun, Track, find_run_pauses
from seqfit.rundir import files


def test_tokens_are_summed_over_all_steps_of_a_record(run_path: Path) -> None:
    run = ShownRun(run_path)
    track = Track(run)
    first, second = run.steps()[:2]
    expected = 2 * 1.9 * first["tokens_per_second"]
    assert track.place(first, "tokens") == pytest.approx(expected)
    assert track.place(second, "tokens") == pytest.approx(expected + 2 * 1.9 * second["tokens_per_second"])


def test_an_evaluation_stands_at_the_last_record_before_it(run_path: Path) -> None:
    track = Track(ShownRun(run_path))
    assert track.tokens(0) == 0
    assert track.tokens(3) == track.tokens(2)
    assert track.tokens(10**6) == track.tokens(400)


def test_minutes_count_from_the_start(run_path: Path) -> None:
    run = ShownRun(run_path)
    assert Track(run).place(run.steps()[-1], "minutes") == pytest.approx(800 / 60)


def test_the_time_until_a_resume_is_no_work(
    run_path: Path, edit_lines: Callable[..., None], edit_manifest: Callable[..., None]
) -> None:
    before = Track(ShownRun(run_path)).place(ShownRun(run_path).steps()[-1], "minutes")
    for name in (files.STEPS, files.EVALUATIONS):
        edit_lines(run_path, name, lambda line: line | {"time": line["time"] + (9_000 if line["step"] > 200 else 0)})
    started = ShownRun(run_path).manifest["started"]
    edit_manifest(run_path, resumed=[started + 400 + 9_000, "damaged"])
    assert Track(ShownRun(run_path)).place(ShownRun(run_path).steps()[-1], "minutes") == pytest.approx(before)


def test_a_pause_with_two_resumes_counts_once(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    last = ShownRun(run_path).steps()[-1]["time"]
    edit_manifest(run_path, resumed=[last + 100, last + 300])
    assert list(find_run_pauses(ShownRun(run_path))) == [(last + 100, 100), (last + 300, 200)]


def test_a_loss_that_is_no_number_leaves_a_gap(run_path: Path) -> None:
    run = ShownRun(run_path)
    records = [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 3.0}, {"step": 3, "loss": None}]
    assert Track(run).points(records, "loss", "step") == [(2.0, 3.0)]


def test_a_run_without_a_manifest_begins_with_its_first_record(run_path: Path) -> None:
    (run_path / files.MANIFEST).write_text("{}")
    run = ShownRun(run_path)
    assert Track(run).place(run.steps()[0], "minutes") == pytest.approx(2 * 1.9 / 60)
