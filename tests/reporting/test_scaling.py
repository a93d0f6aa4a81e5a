from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from seqfit.comparison.records import dump_results, read_results
from seqfit.reporting.scaling import show_scaling
from seqfit.reporting.subject import SCALING, read_report_subject


def test_runs_of_one_process_have_no_such_part(run_path: Path) -> None:
    assert show_scaling(read_report_subject([run_path])) is None


def test_a_predicted_efficiency_is_that_of_the_reference_on_one_card(comparison_path: Path) -> None:
    shown = str(show_scaling(read_report_subject([comparison_path])))
    assert "2 x Tesla V100" in shown
    assert "87.5%" in shown  # 140,000 over twice 80,000
    assert "badge predicted" in shown
    assert "badge plain" not in shown


def test_a_measured_efficiency_stands_beside_it(comparison_path: Path) -> None:
    comparison = read_results(comparison_path)
    *others, last = comparison.results
    measured = replace(last, state="finished", scaling_efficiency=0.904, figures=others[0].figures)
    dump_results(replace(comparison, results=(*others, measured)), comparison_path)
    shown = str(show_scaling(read_report_subject([comparison_path])))
    assert "90.4%" in shown
    assert "measured" in shown


def test_what_seqfit_scale_wrote_is_drawn(tmp_path: Path) -> None:
    measured = {"step_seconds": 0.1, "tokens_per_second": 25_100.0, "efficiency": 0.904}
    rows = [
        {
            "strategy": "ddp",
            "processes": 2,
            "kind": "strong",
            "measured": measured,
            "predicted": {**measured, "efficiency": 0.948},
        }
    ]
    cards = {"card": "Tesla V100", "rows": [{**rows[0], "processes": 8, "measured": None}, "damaged"]}
    stored = {"rows": [*rows, {"strategy": "ddp"}], "cards": cards, "sentences": ["it <pays>"]}
    (tmp_path / SCALING).write_text(json.dumps(stored))
    shown = str(show_scaling(read_report_subject([tmp_path])))
    for said in ("90.4%", "94.8%", "25.1K", "Tesla V100", "it &lt;pays&gt;", "Scaling efficiency"):
        assert said in shown
