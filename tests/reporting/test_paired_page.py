"""A page of two runs says which is better, with intervals and p; a page of one or three does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.reporting.paired import show_paired
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


@pytest.fixture
def two(tmp_path: Path, make_run: Callable[[Path], Path]) -> list[Path]:
    """The second answers 21 more rows right."""
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\n")
    path = runs[1] / files.evaluation("test")
    evaluation = json.loads(path.read_text("utf-8"))
    for row in evaluation["predictions"][:60]:
        row["prediction"] = row["references"][0]
    path.write_text(json.dumps(evaluation), "utf-8")
    return runs


def test_two_runs_are_paired(two: list[Path]) -> None:
    shown = str(show_paired(read_report_subject(two)))
    assert "61 rows that both have" in shown
    assert "21 are better in" in shown
    assert ", 0 worse, 40 alike" in shown
    assert '<span class="badge good">better</span>' in shown
    assert "0.001</td>" in shown
    assert "+34.43" in shown  # exact match: 21 of 61


def test_the_other_way_round_it_is_worse(two: list[Path]) -> None:
    shown = str(show_paired(read_report_subject(two[::-1])))
    assert '<span class="badge bad">worse</span>' in shown
    assert "-34.43" in shown


def test_one_run_or_runs_without_common_rows_have_no_such_section(two: list[Path]) -> None:
    assert show_paired(read_report_subject(two[:1])) is None
    path = two[1] / files.evaluation("test")
    evaluation = json.loads(path.read_text("utf-8"))
    for row in evaluation["predictions"]:
        row["id"] = f"other {row['id']}"
    path.write_text(json.dumps(evaluation), "utf-8")
    assert show_paired(read_report_subject(two)) is None
