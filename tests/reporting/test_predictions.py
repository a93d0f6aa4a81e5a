from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqfit.recipe.schema import TaskRecipe
from seqfit.reporting.predictions import SHOWN, SIDE_BY_SIDE, is_correct, show_difference, show_predictions, show_split
from seqfit.reporting.subject import read_report_subject
from seqfit.rundir import files

QA = TaskRecipe(name="qa", source="{q}", target="{a}")


def _row(prediction: str, *references: str) -> dict[str, Any]:
    return {"id": "1", "source": "who?", "prediction": prediction, "references": list(references)}


def test_an_answer_is_judged_as_the_metric_does() -> None:
    assert is_correct(_row("the Ada!", "ada"), QA)
    assert not is_correct(_row("Ada Lovelace", "Ada"), QA)
    assert is_correct(_row("", ""), QA)


def test_spanish_articles_do_not_count() -> None:
    spanish = QA.model_copy(update={"language": "es"})
    assert is_correct(_row("el río Ebro", "río Ebro"), spanish)


def test_incorrect_ones_come_first_and_can_be_filtered() -> None:
    rows = [_row("right", "right"), _row("wrong", "other")]
    shown = show_split({"split": "test", "predictions": rows}, QA)
    assert shown.index("badge bad") < shown.index("badge good")
    assert "Incorrect 1" in shown
    assert 'data-show="bad"' in shown


def test_ten_rows_are_open_the_worst_first_and_the_others_a_click_away() -> None:
    rows = [_row("right", "right")] * 20 + [_row("wrong", "other")] * 8
    shown = show_split({"split": "test", "predictions": rows}, QA)
    articles = shown.split("<article")[1:]
    assert ["hidden" in one.split(">")[0] for one in articles] == [False] * 10 + [True] * 18
    assert ["badge bad" in one for one in articles] == [True] * 8 + [False] * 20
    assert "10 of 28" in shown
    assert "Show more" in shown


def test_a_large_evaluation_shows_its_worst_rows_and_some_others_and_says_so() -> None:
    rows = [_row("x", "x")] * (2 * SHOWN) + [_row("wrong", "x")] * 30
    shown = show_split({"split": "test", "predictions": rows}, QA)
    assert f"{SHOWN:,} of {len(rows):,} rows: the worst ones" in shown
    assert shown.count("badge bad") == 30
    assert shown.count("badge good") == SHOWN - 30
    long = [row | {"source": "x" * 20_000} for row in rows]
    assert len(show_split({"split": "test", "predictions": long}, QA)) < 4_000_000


def test_rows_carry_what_they_are_sorted_and_filtered_by() -> None:
    rows = [
        _row("Ada", "Ada") | {"confidence": 0.9, "scores": {"f1": 100.0, "em": 100.0}},
        _row("Ada L", "Ada B") | {"confidence": 0.4, "scores": {"f1": 50.0, "em": 0.0}, "source": "when was it " * 30},
        _row("Bob", "Ada") | {"confidence": 0.8, "scores": {"f1": 0.0, "em": 0.0}},
    ] * 5
    shown = show_split({"split": "test", "predictions": rows}, QA)
    assert [line.split('"')[0] for line in shown.split('data-order="')[1:]][:6] == ["2", "5", "8", "11", "14", "1"]
    assert 'data-kind="bad" data-goodness="50" data-order="1" data-length="90" data-confidence="0.4"' in shown
    assert "question: when (5)" in shown
    assert "F1 50.00 · confidence 0.40" in shown


def test_a_prediction_is_marked_where_it_differs_from_the_closest_reference() -> None:
    shown = show_difference("the quick red fox", ["no", "the quick brown fox"])
    assert shown == '<span class="text">the quick <del>brown</del><ins>red</ins> fox</span>'
    assert show_difference("Ada", ["Ada", "x"]) == '<span class="text">Ada</span>'
    assert show_difference("<b>", [""]) == '<span class="text">&lt;b&gt;</span>'
    assert "&lt;script&gt;" in show_difference("<script> a", ["a"]).replace("<ins>", "").replace("</ins>", "").replace(
        "&lt;</ins>", "&lt;"
    )
    assert "<script" not in show_difference("<script> a", ["<script> b"])


def test_a_summary_is_neither_right_nor_wrong() -> None:
    task = TaskRecipe(name="summarize", source="{q}", target="{a}")
    shown = show_split({"split": "test", "predictions": [_row("short", "a", "b")]}, task)
    assert "badge" not in shown
    assert "data-show" not in shown
    assert "a / b" in shown


def test_an_empty_prediction_is_marked() -> None:
    shown = show_split({"split": "test", "predictions": [_row("", "Ada")]}, QA)
    assert "(empty)" in shown


def test_an_evaluation_without_predictions_says_so() -> None:
    assert "kept no predictions" in show_split({"split": "test"}, QA)


def change_answers(run: Path, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> None:
    path = run / files.evaluation("test")
    evaluation = json.loads(path.read_text("utf-8"))
    evaluation["predictions"] = [change(number, row) for number, row in enumerate(evaluation["predictions"])]
    path.write_text(json.dumps(evaluation), "utf-8")


def test_several_runs_have_predictions_for_the_same_rows_side_by_side(
    tmp_path: Path, make_run: Callable[[Path], Path]
) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\n")
    change_answers(runs[1], lambda number, row: row | ({"prediction": "Ciudad 0"} if number == 41 else {}))
    shown = str(show_predictions(read_report_subject(runs)))
    assert "10 of 61 rows that all runs have; predictions differ in 1." in shown
    assert shown.count('class="example"') == SIDE_BY_SIDE
    first = shown[: shown.index('class="example"', shown.index('class="example"') + 1)]
    assert "Ciudad 0" in first
    assert "badge bad" in first
    assert "badge good" in first
    assert "<script>alert" not in shown


def test_rows_that_only_one_run_has_are_left_out(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\n")
    change_answers(runs[1], lambda number, row: row | {"id": f"other{number}"})
    assert "no evaluated row in common" in str(show_predictions(read_report_subject(runs)))


def test_runs_that_were_not_evaluated_have_no_predictions(tmp_path: Path, make_run: Callable[[Path], Path]) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b")]
    (runs[1] / files.STRATEGY).write_text("precision: bf16\n")
    (runs[1] / files.evaluation("test")).unlink()
    assert show_predictions(read_report_subject(runs)) is None
    (runs[0] / files.evaluation("test")).unlink()
    for places in (runs, runs[:1]):
        assert "No split was evaluated; run seqfit evaluate RUN" in str(show_predictions(read_report_subject(places)))
