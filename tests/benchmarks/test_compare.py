from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare.measure import build_arguments, check, find_gap, hide_places, lower_headings
from seqfit.comparison.matrix import list_repeats
from seqfit.comparison.records import TRIAL_RUNS, Comparison, add_outcome, dump_matrix
from seqfit.comparison.results import collect_comparison
from seqfit.rundir import files
from tests.comparison.comparisons import matrix_of, pretend


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """Of trials that nobody ran; the loss of accumulation is off by 0.5 at its last step."""
    matrix = matrix_of(strategies="classic", repeats=1, steps=5)
    dump_matrix(matrix, tmp_path)
    for trial in list_repeats(matrix)[0]:
        add_outcome(pretend(matrix, trial, tmp_path), tmp_path)
    steps = tmp_path / TRIAL_RUNS / "accumulation-seed0-repeat0" / files.STEPS
    *others, last = steps.read_text().splitlines()
    steps.write_text("\n".join([*others, last.replace('"loss": 1.0', '"loss": 1.5')]) + "\n")
    return collect_comparison(tmp_path)


def test_losses_are_judged_at_every_step(comparison: Comparison) -> None:
    assert find_gap(comparison, "accumulation") == 0.5
    lines = list(check(comparison, 60.0))
    assert "| losses of accumulation within 0.0001 of baseline's | 5.0e-01 over 5 steps | **no** |" in lines
    assert "| losses of recompute within 0.0001 of baseline's | 0.0e+00 over 5 steps | yes |" in lines


def test_a_comparison_that_takes_too_long_is_marked(comparison: Comparison) -> None:
    within = [next(line for line in check(comparison, seconds) if "total time" in line) for seconds in (857, 859)]
    assert [line.endswith("| yes |") for line in within] == [True, False]


def test_one_target_is_not_enough_of_a_prediction(comparison: Comparison) -> None:
    nothing = replace(comparison, results=comparison.results[:1])
    assert "| predicted |  | **no** |" in list(check(nothing, 1.0))


def test_what_is_published_names_no_folder_of_a_machine() -> None:
    text = '{"folder": "/a/out", "path": "/b/model", "data": "/c/ag.csv"}'
    hidden = hide_places(text, Path("/b/model"), Path("/c/ag.csv"), Path("/a/out"))
    assert hidden == '{"folder": "FOLDER", "path": "MINILM", "data": "AG_NEWS"}'


def test_headings_go_one_level_down() -> None:
    assert lower_headings(["# Title", "text", "## Part"]) == "## Title\ntext\n### Part"


def test_further_words_come_last_and_win() -> None:
    class Given:
        data, out, options = Path("ag.csv"), Path("o"), ["--repeats", "3"]

    words = build_arguments(Given(), Path("m"))  # type: ignore[arg-type]
    assert words[:3] == ["compare", "bert-agnews", "model.path=m"]
    assert words[-2:] == ["--repeats", "3"]
