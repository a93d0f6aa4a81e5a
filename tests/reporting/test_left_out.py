from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqfit.reporting.page import build_parts
from seqfit.reporting.sources import show_left_out
from seqfit.reporting.subject import read_report_subject

BAD: dict[str, Any] = {
    "split": "train",
    "source": "mine.csv",
    "of": 9000,
    "cause": "empty target",
    "rows": 90,
    "examples": [[4, "Row 4 has an empty <target>."], [17, "Row 17 has."]],
    "unread": False,
}


def test_each_cause_has_its_count_and_first_rows(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, data={"left_out": [BAD, BAD | {"split": "validation", "rows": 3, "of": 1000}]})
    shown = str(show_left_out(read_report_subject([run_path])))
    assert "empty target" in shown
    assert "1.0%" in shown
    assert "0.3%" in shown
    assert "Row 4 has an empty &lt;target&gt;." in shown


def test_runs_on_the_same_data_show_it_once(comparison_path: Path, edit_manifest: Callable[..., None]) -> None:
    for run in (comparison_path / "runs").iterdir():
        edit_manifest(run, data={"left_out": [BAD]})
    assert str(show_left_out(read_report_subject([comparison_path]))).count("empty target") == 1


def test_a_run_without_bad_rows_has_no_such_part(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    assert show_left_out(read_report_subject([run_path])) is None
    edit_manifest(run_path, data={"left_out": "damaged"})
    assert show_left_out(read_report_subject([run_path])) is None


def test_a_corrupted_record_is_reported_and_the_page_is_built(
    run_path: Path, edit_manifest: Callable[..., None]
) -> None:
    edit_manifest(run_path, data={"left_out": [{"split": "train"}]})
    assert any("Not shown: rows left out" in part for part in build_parts([run_path])[1])
