from __future__ import annotations

import json
from pathlib import Path

from seqfit.reporting.scores import show_scores
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files


def test_scores_of_the_start_the_best_and_afterwards_are_columns(run_path: Path) -> None:
    shown = str(show_scores(read_report_subject([run_path])))
    for said in ("validation, step 0</th>", "validation, step 400</th>", "test, after</th>", "squad|normalisation:es"):
        assert said in shown
    assert '<td class="number">67.9</td>' in shown


def test_before_stands_before_after(run_path: Path) -> None:
    before = {"split": "test", "metrics": {"em": 0.3, "f1": 4.4}}
    (run_path / files.evaluation("test", before=True)).write_text(json.dumps(before), "utf-8")
    shown = str(show_scores(read_report_subject([run_path])))
    assert shown.index("test, before</th>") < shown.index("test, after</th>")


def test_sources_scored_apart_have_columns_of_their_own(run_path: Path) -> None:
    evaluation = json.loads((run_path / files.evaluation("test")).read_text("utf-8"))
    evaluation |= {"by_source": {"wiki": {"em": 11.1}, "news": {"em": 22.2}}, "absent": {"bleu": "no <words>"}}
    (run_path / files.evaluation("test")).write_text(json.dumps(evaluation), "utf-8")
    shown = str(show_scores(read_report_subject([run_path])))
    assert "test, wiki</th>" in shown
    assert '<td class="number">22.2</td>' in shown
    assert "bleu: no &lt;words&gt;" in shown


def test_of_several_runs_each_has_a_line_with_its_best(comparison_path: Path) -> None:
    shown = str(show_scores(read_report_subject([comparison_path])))
    assert shown.count("<tr>") == 7
    assert "baseline-seed1-repeat0" in shown
    assert '<td class="number">400</td>' in shown


def test_a_run_that_was_never_evaluated_has_no_scores(run_path: Path) -> None:
    (run_path / files.EVALUATIONS).unlink()
    (run_path / files.evaluation("test")).unlink()
    assert show_scores(read_report_subject([run_path])) is None
