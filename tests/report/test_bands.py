from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.report.axes import Track
from seqfit.report.bands import find_bands
from seqfit.report.shown_run import ShownRun
from seqfit.rundir import files


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


def test_there_are_never_more_bands_than_can_be_told_apart(run_path: Path, edit_lines: Callable[..., None]) -> None:
    edit_lines(run_path, files.STEPS, lambda line: line | {"phase_seconds": {"snapshot": 1e-3}})
    assert len(bands(run_path, "snapshot")) + len(bands(run_path, "evaluation")) == 100
    assert len(bands(run_path, "evaluation")) == 6
