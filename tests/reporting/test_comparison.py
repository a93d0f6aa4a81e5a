from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seqfit.comparison.records import FairnessCheck, dump_results, read_results
from seqfit.reporting.comparison import show_checklist, show_results
from seqfit.reporting.page import report
from seqfit.reporting.subject import read_report_subject


def test_runs_alone_have_no_results(run_path: Path) -> None:
    subject = read_report_subject([run_path])
    assert [show(subject) for show in (show_results, show_checklist)] == [None, None]


def test_every_candidate_has_one_row_with_its_values_and_their_ratios_to_the_baseline(comparison_path: Path) -> None:
    shown = str(show_results(read_report_subject([comparison_path])))
    first = shown[: shown.index("</table>")]
    assert first.count("<tr>") == 1 + 4
    for said in ("2.4 s", "67.70", "-0.20, not significant"):
        assert said in first
    assert '<div class="worse">126%</div>' in first
    assert '<div class="better">66%</div>' in first


def test_kinds_and_reasons_are_shown(comparison_path: Path) -> None:
    shown = str(show_results(read_report_subject([comparison_path])))
    for said in (
        "baseline",
        "lossless",
        "lossy",
        "not available here",
        "bf16 is lossy: &lt;bf16&gt; rounds",
        "one core is here",
    ):
        assert said in shown
    assert "not measured: GPU busy (no driver &lt;library&gt;)" in shown
    assert "2 seeds, 1 repeat, 400 steps each, of which 2 are warm-up and not timed" in shown


def test_a_change_of_unknown_significance_is_neither_better_nor_worse(comparison_path: Path) -> None:
    comparison = read_results(comparison_path)
    unknown = tuple(
        replace(one, figures={name: replace(figure, is_significant=None) for name, figure in one.figures.items()})
        for one in comparison.results
    )
    dump_results(replace(comparison, results=unknown), comparison_path)
    shown = str(show_results(read_report_subject([comparison_path])))
    assert "126%, too few repeats to tell" in shown
    assert "worse" not in shown


def test_what_is_predicted_is_marked_in_the_ranking_and_folds_out_for_every_device(comparison_path: Path) -> None:
    shown = str(show_results(read_report_subject([comparison_path])))
    first, *folded = shown.split("<details")
    assert "100 ms of 100 ms" in first
    assert '100% <span class="badge predicted">predicted</span>' in first
    assert "140K" not in first
    tesla = next(part for part in folded if "Predicted for Tesla V100" in part)
    assert "2 x Tesla V100" in tesla
    assert "140K" in tesla


def test_a_fair_comparison_folds_its_checklist(comparison_path: Path) -> None:
    shown = str(show_checklist(read_report_subject([comparison_path])))
    assert "Is it fair? Yes" in shown
    assert "All 2 checks passed" in shown


def test_an_unfair_comparison_says_so_on_top_and_why(comparison_path: Path) -> None:
    comparison = read_results(comparison_path)
    broken = FairnessCheck("same versions", False, "torch 2.13.0 and 2.12.0")
    dump_results(replace(comparison, checks=(*comparison.checks[:1], broken)), comparison_path)
    shown = str(show_checklist(read_report_subject([comparison_path])))
    assert "Is it fair? No" in shown
    assert shown.index("failed") < shown.index("same data order")
    page = report(comparison_path).read_text("utf-8")
    assert '<p class="verdict">Not a fair comparison (see the checklist). recompute takes 34% less' in page
