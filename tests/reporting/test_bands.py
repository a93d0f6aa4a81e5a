from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.reporting.curves import find_bands
from seqfit.reporting.runs import ShownRun, Track
from seqfit.rundir import files
from seqfit.rundir.records import SnapshotEvent
from seqfit.rundir.writer import RunWriter


def bands(path: Path, what: str) -> list[tuple[float, float]]:
    run = ShownRun(path)
    return [(60 * band.begin, 60 * band.end) for band in find_bands(run, Track(run)) if band.what == what]


def test_an_evaluation_ends_with_its_record(run_path: Path) -> None:
    found = bands(run_path, "evaluation")
    assert len(found) == 6
    assert found[1] == pytest.approx((2 * 80 - 21.5, 2 * 80))


def test_a_snapshot_follows_the_evaluation_or_else_the_record_before(
    run_path: Path, edit_lines: Callable[..., None]
) -> None:
    taken = {"phase_seconds": {"snapshot": 0.5}}
    edit_lines(run_path, files.STEPS, lambda line: line | (taken if line["step"] in (10, 82) else {}))
    edit_lines(run_path, files.EVALUATIONS, lambda line: line | {"time": line["time"] + 1})  # between two records
    first, second = bands(run_path, "snapshot")
    assert first == pytest.approx((16, 16.5))
    assert second == pytest.approx((161, 161.5))


def titles(path: Path) -> list[str]:
    run = ShownRun(path)
    return list(dict.fromkeys(band.title for band in find_bands(run, Track(run))))


def record_snapshot(path: Path, began: float, ended: float, waited: float) -> None:
    """As training does, in seconds since the run's start."""
    start, writer = ShownRun(path).manifest["started"], RunWriter.reopen(path)
    writer.snapshot(SnapshotEvent(80, start + began, start + ended, waited))
    writer.close()


def test_a_snapshot_lies_where_it_was_recorded_whatever_the_steps_say(
    run_path: Path, edit_lines: Callable[..., None]
) -> None:
    taken = {"phase_seconds": {"snapshot": 0.5}}
    edit_lines(run_path, files.STEPS, lambda line: line | (taken if line["step"] == 82 else {}))
    record_snapshot(run_path, 160.25, 160.75, 0.5)
    (found,) = bands(run_path, "snapshot")
    assert found == pytest.approx((160.25, 160.75))
    assert titles(run_path) == ["evaluation", "snapshot"]


def test_a_snapshot_written_in_the_background_is_marked(run_path: Path) -> None:
    record_snapshot(run_path, 160.25, 164.25, 0.5)
    (found,) = bands(run_path, "snapshot")
    assert found == pytest.approx((160.25, 164.25))
    assert titles(run_path)[-1] == "snapshot (written in the background)"


def test_a_run_that_a_later_version_went_on_with_has_both_and_says_so(
    run_path: Path, edit_lines: Callable[..., None]
) -> None:
    taken = {"phase_seconds": {"snapshot": 0.5}}
    edit_lines(run_path, files.STEPS, lambda line: line | (taken if line["step"] in (10, 202) else {}))
    record_snapshot(run_path, 402.0, 403.0, 1.0)
    placed, recorded = bands(run_path, "snapshot")
    assert placed == pytest.approx((16, 16.5))
    assert recorded == pytest.approx((402, 403))
    assert "snapshot (time estimated from the steps around it)" in titles(run_path)


def test_a_corrupted_record_of_a_snapshot_is_skipped(run_path: Path) -> None:
    with (run_path / files.EVENTS).open("a") as stream:
        stream.write('{"time": 1, "kind": "snapshot", "message": "", "data": {"began": "x"}}\n')
        stream.write('{"time": 1, "kind": "snapshot", "message": "", "data": 7}\n')
    assert bands(run_path, "snapshot") == []


def test_there_are_never_more_bands_than_can_be_distinguished(run_path: Path, edit_lines: Callable[..., None]) -> None:
    edit_lines(run_path, files.STEPS, lambda line: line | {"phase_seconds": {"snapshot": 1e-3}})
    assert len(bands(run_path, "snapshot")) + len(bands(run_path, "evaluation")) == 100
    assert len(bands(run_path, "evaluation")) == 6
