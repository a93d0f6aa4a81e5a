from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.records import MATRIX, RESULTS
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.reporting.subject import SCALING, read_report_subject
from seqfit.rundir import files
from seqfit.rundir.records import ParallelEvent
from seqfit.rundir.writer import RunWriter


def set_recipe(run: Path, *overrides: str) -> None:
    (run / files.RECIPE).write_text(dump_recipe(load_recipe(run / files.RECIPE, list(overrides))), "utf-8")


def test_one_run_is_single_and_has_the_accent(run_path: Path) -> None:
    subject = read_report_subject([run_path])
    assert subject.single is not None
    assert subject.title == run_path.name
    assert subject.colour(run_path.name) == "var(--accent)"


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b", "c")]
    set_recipe(runs[1], "seed=7")
    set_recipe(runs[2], "train.learning_rate=1e-3")
    subject = read_report_subject(runs)
    assert {way: len(group) for way, group in subject.groups.items()} == {"a (2 seeds)": 2, "c": 1}
    assert subject.colour("a (2 seeds)") != subject.colour("c")


@pytest.mark.parametrize(
    "entries", [{"hardware": {"device": "cpu", "name": "other"}}, {"precision": "bf16"}, {"launch": "here-1"}]
)
def test_another_machine_precision_or_launch_is_no_other_seed(
    entries: dict[str, Any], tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    assert list(read_report_subject(runs).groups) == ["a (2 runs)"]  # of one seed
    edit_manifest(runs[1], **entries)
    assert list(read_report_subject(runs).groups) == ["a", "b"]


def test_another_number_of_processes_is_another_group_with_that_number_in_its_name(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b", "c")]
    for run, processes in zip(runs, (2, 2, 4), strict=True):
        edit_manifest(run, launch=f"here-{run.name}", processes=processes)
    set_recipe(runs[1], "seed=7")
    assert list(read_report_subject(runs).groups) == ["a (2 processes, 2 seeds)", "c (4 processes)"]
    assert list(read_report_subject(runs[:2]).groups) == ["a (2 seeds)"]  # it says nothing where all have as many
    edit_manifest(runs[2], launch=None, processes=1)
    assert list(read_report_subject([runs[0], runs[2]]).groups) == ["a (2 processes)", "c (1 process)"]


def test_older_runs_have_the_number_of_processes_in_an_event(
    tmp_path: Path, make_run: Callable[[Path], Path], edit_manifest: Callable[..., None]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    for run, processes in zip(runs, (2, 4), strict=True):
        edit_manifest(run, launch=f"here-{run.name}")
        RunWriter.add_event(run, ParallelEvent("ddp", processes))
    assert list(read_report_subject(runs).groups) == ["a (2 processes)", "b (4 processes)"]


def test_a_strategy_that_differs_makes_another_group(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("name: other\nprecision: bf16\n")
    assert list(read_report_subject(runs).groups) == ["a", "b"]


def test_folders_with_the_same_name_are_distinguished_by_their_parents(
    tmp_path: Path, make_run: Callable[[Path], Path]
) -> None:
    runs = [make_run(tmp_path / parent / "1") for parent in ("x", "y")]
    set_recipe(runs[1], "train.steps=300")
    assert list(read_report_subject(runs).groups) == ["x/1", "y/1"]


def test_folders_whose_parents_have_one_name_too_are_all_there(
    tmp_path: Path, make_run: Callable[[Path], Path]
) -> None:
    runs = [make_run(tmp_path / parent / "runs" / "demo") for parent in ("x", "y")]
    set_recipe(runs[1], "train.steps=300")
    assert list(read_report_subject(runs).groups) == ["x/runs/demo", "y/runs/demo"]


def test_a_place_that_is_given_twice_is_shown_once(run_path: Path) -> None:
    subject = read_report_subject([run_path, run_path.parent, run_path / ".." / run_path.name])
    assert subject.single is not None
    assert subject.title == run_path.name


def test_a_folder_of_runs_is_all_of_them(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / "runs" / name)
    assert len(read_report_subject([tmp_path / "runs"]).runs) == 2


def test_a_comparison_has_a_group_for_each_candidate(comparison_path: Path) -> None:
    subject = read_report_subject([comparison_path])
    assert subject.comparison is not None
    assert {way: len(runs) for way, runs in subject.groups.items()} == {"baseline": 2, "recompute": 2, "bf16": 2}
    assert subject.single is None
    assert [subject.colour(way) for way in ("baseline", "recompute", "bf16", "ddp2")] == [
        f"var(--series-{number})" for number in (1, 2, 3, 4)
    ]


def test_curves_that_coincide_can_all_be_seen(comparison_path: Path) -> None:
    subject = read_report_subject([comparison_path])
    widths = [subject.width(way) for way in ("baseline", "recompute", "bf16", "ddp2")]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 4


def test_a_comparison_that_has_just_begun_shows_its_runs(comparison_path: Path) -> None:
    (comparison_path / RESULTS).unlink()
    shutil.rmtree(comparison_path / "runs" / "bf16-seed0-repeat0")
    subject = read_report_subject([comparison_path])
    assert subject.comparison is None
    assert len(subject.runs) == 5
    assert "no repeat has ended" in subject.gaps[0]


def test_a_trial_that_died_is_resumed_with_its_comparison(
    comparison_path: Path, edit_manifest: Callable[..., None]
) -> None:
    edit_manifest(comparison_path / "runs" / "bf16-seed0-repeat0", status="running")
    gaps = " ".join(gap for run in read_report_subject([comparison_path]).runs for gap in run.gaps)
    assert f"seqfit compare {comparison_path} --resume" in gaps
    assert "seqfit train" not in gaps


def test_corrupted_results_are_reported_and_the_runs_shown(comparison_path: Path) -> None:
    (comparison_path / RESULTS).write_text("{")
    subject = read_report_subject([comparison_path])
    assert len(subject.runs) == 6
    assert "can't be read" in subject.gaps[0]
    (comparison_path / MATRIX).write_text("[")
    assert len(read_report_subject([comparison_path]).runs) == 6


def test_with_other_paths_only_the_runs_of_a_comparison_are_shown(comparison_path: Path, run_path: Path) -> None:
    subject = read_report_subject([comparison_path, run_path])
    assert subject.comparison is None
    assert len(subject.runs) == 7
    assert "are on its own page" in subject.gaps[0]


def test_a_path_without_a_run_is_reported(tmp_path: Path) -> None:
    subject = read_report_subject([tmp_path / "nowhere"])
    assert subject.runs == []
    assert "holds no run yet" in subject.gaps[0]


def test_a_scaling_report_is_read(tmp_path: Path) -> None:
    (tmp_path / SCALING).write_text(json.dumps({"rows": [], "sentences": ["it scales"]}))
    subject = read_report_subject([tmp_path])
    assert subject.gaps == []
    assert subject.scalings[0]["sentences"] == ["it scales"]
