from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.comparison.records import Comparison, Prediction, dump_predictions
from seqfit.comparison.results import collect_comparison
from seqfit.comparison.tables import CSV_FIELDS, to_csv, to_latex, to_markdown
from tests.comparison.made_runs import play


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = play(tmp_path_factory.mktemp("made"), recompute=1.2)
    known = Prediction("fp16", "Tesla V100", 2**31, 0.02, 6000.0, True)
    dump_predictions([known, Prediction("recompute", "Tesla V100", None, None, None, None, "no rates")], folder)
    return collect_comparison(folder)


def unequal(comparison: Comparison) -> Comparison:
    return replace(comparison, checks=(replace(comparison.checks[0], same=False, detail="two models"),))


def read_csv(comparison: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(comparison))))


def test_the_csv_has_one_line_per_figure_in_base_units(comparison: Comparison) -> None:
    lines = read_csv(comparison)
    assert tuple(lines[0]) == CSV_FIELDS
    measured = [line for line in lines if line["source"] == "measured" and line["candidate"] == "recompute"]
    (step,) = [line for line in measured if line["quantity"] == "step_seconds"]
    assert (step["source"], step["unit"], step["trials"], step["is_significant"]) == ("measured", "s", "3", "true")
    assert float(step["mean"]) == pytest.approx(0.6, rel=0.01)
    assert float(step["change_low"]) < 0.2 < float(step["change_high"])


def test_predicted_and_measured_are_never_one_line(comparison: Comparison) -> None:
    predicted = [line for line in read_csv(comparison) if line["source"] == "predicted"]
    assert {line["target"] for line in predicted} == {"Tesla V100"}
    assert [line["mean"] for line in predicted if line["candidate"] == "fp16"] == ["2147483648", "0.02", "6000.0"]
    assert all(line["mean"] == "" for line in predicted if line["candidate"] == "recompute")
    assert all(line["reason"] == "no rates" for line in predicted if line["candidate"] == "recompute")


def test_the_scaling_efficiency_of_several_processes_is_a_line(comparison: Comparison) -> None:
    assert "scaling_efficiency" not in {line["quantity"] for line in read_csv(comparison)}
    first, *others = comparison.results
    shared = replace(comparison, results=(first, replace(others[0], scaling_efficiency=0.904), *others[1:]))
    (line,) = [line for line in read_csv(shared) if line["quantity"] == "scaling_efficiency"]
    assert (line["candidate"], line["source"], line["target"]) == ("recompute", "measured", "this machine")
    assert (line["unit"], line["mean"], line["trials"], line["change"]) == ("share", "0.904", "3", "")


def test_the_baseline_has_no_change_rather_than_zero(comparison: Comparison) -> None:
    baseline = [line for line in read_csv(comparison) if line["candidate"] == "baseline"]
    assert {line["change"] for line in baseline} == {""}


def test_markdown_has_the_verdict_the_tables_and_the_checklist(comparison: Comparison) -> None:
    text = to_markdown(comparison)
    assert text.startswith("# demo\n\n")
    assert all(f"- {sentence}" in text for sentence in comparison.verdict.splitlines())
    assert "| recompute | lossless | " in text
    assert "**Predicted for Tesla V100 (not measured)**" in text
    assert text.count("| yes |") == len(comparison.checks) + 1  # and what fits
    assert "- time per step: of the baseline the median over the steps after warm-up" in text
    assert "seqfit compare demo --strategies classic" in text


def test_an_unfair_comparison_says_so_on_top_of_markdown_and_latex(comparison: Comparison) -> None:
    markdown, latex = to_markdown(unequal(comparison)), to_latex(unequal(comparison))
    assert markdown.splitlines()[2] == "> **NOT A FAIR COMPARISON. same recipe: two models.**"
    assert "% NOT A FAIR COMPARISON" in latex.split(r"\begin{table}")[0]
    assert r"\caption{Not a fair comparison. Ranked by time per step." in latex


def test_latex_has_the_published_shape(comparison: Comparison) -> None:
    text = to_latex(comparison)
    assert text.startswith("% needs \\usepackage{booktabs}")
    assert r"\multicolumn{2}{c}{time per step} & \multicolumn{2}{c}{resident memory}" in text
    assert r"candidate & kind & mean & \% of baseline" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2


def test_names_are_escaped_where_they_must_be(comparison: Comparison) -> None:
    first, *others = comparison.results
    odd = replace(first, candidate=replace(first.candidate, name="a|b_c%"))
    named = replace(comparison, results=(odd, *others))
    assert r"| a\|b_c% |" in to_markdown(named)
    assert r"    a|b\_c\% & baseline" in to_latex(named)
    assert read_csv(named)[0]["candidate"] == "a|b_c%"


def test_a_comparison_without_results_can_be_published(tmp_path: Path) -> None:
    from tests.comparison.made_runs import make_folder

    begun = collect_comparison(make_folder(tmp_path))
    assert [line["state"] for line in read_csv(begun)] == ["waiting"] * 3
    assert "No measurements can be compared: there are none." in to_markdown(begun)
    assert r"\begin{table}" not in to_latex(begun)
