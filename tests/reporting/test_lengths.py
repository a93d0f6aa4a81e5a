from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqfit.inspection.statistics import summarise_lengths
from seqfit.reporting.runs import ShownRun
from seqfit.reporting.sources import read_lengths, show_lengths
from seqfit.reporting.subject import read_report_subject

SUMMARY = asdict(summarise_lengths(np.arange(1, 200), None, already_truncated=5))


def test_each_split_and_side_has_its_histogram(run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, data={"lengths": {"train": {"source": SUMMARY, "target": SUMMARY}}})
    shown = str(show_lengths(read_report_subject([run_path])))
    assert 'data-name="lengths-train-source"' in shown
    assert 'data-name="lengths-train-target"' in shown
    assert "95% have at most 190" in shown
    assert "2.5% truncated at 199" in shown


def test_runs_on_the_same_data_show_it_once(comparison_path: Path, edit_manifest: Callable[..., None]) -> None:
    for run in (comparison_path / "runs").iterdir():
        edit_manifest(run, data={"lengths": {"train": {"source": SUMMARY}}})
    assert str(show_lengths(read_report_subject([comparison_path]))).count("<figure") == 1


def test_a_manifest_without_lengths_names_the_command_that_shows_them(run_path: Path) -> None:
    shown = str(show_lengths(read_report_subject([run_path])))
    assert f"seqfit data {run_path}/recipe.yaml" in shown


@pytest.mark.parametrize("damaged", [17, {"minimum": 1}, {**SUMMARY, "counts": "many"}, {**SUMMARY, "bins": []}])
def test_what_is_no_summary_is_passed_over(damaged: Any, run_path: Path, edit_manifest: Callable[..., None]) -> None:
    edit_manifest(run_path, data={"lengths": {"train": {"source": damaged, "target": SUMMARY}}})
    assert [(split, side) for split, side, _ in read_lengths(ShownRun(run_path))] == [("train", "target")]
