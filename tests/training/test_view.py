from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from seqfit.rundir.records import EvaluationRecord, EventRecord, StepRecord
from seqfit.training import view as views
from seqfit.training.view import LineView, Terminal, choose_training_view

STEP = StepRecord(
    step=50, epoch=0.5, loss=1.25, learning_rate=3e-4, gradient_norm=0.7, examples=32, source_tokens=900,
    target_tokens=100, padded_tokens=12, micro_batches=1, step_seconds=0.1, tokens_per_second=10_000.0,
    memory_bytes=3 * 2**30, time=0.0,
)  # fmt: skip
EVALUATION = EvaluationRecord(50, "validation", 0.5, {"em": 81.5, "f1": 90.0}, 200, 3.0, 0.0)


def test_plain_lines_show_loss_speed_memory_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView()
    view.start("a model", 100)
    view.step(STEP)
    view.evaluation(EVALUATION, best=True)
    view.event(EventRecord(0.0, "data", "validation: split from train"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a model"
    assert lines[1].startswith("step 50/100  loss 1.2500  lr 3.0e-04  10K tokens/s  3.0 GiB  ETA ")
    assert lines[2] == "step 50: validation loss 0.5000  em 81.50  f1 90.00  (best so far)  [200 rows, 3.0 s]"
    assert lines[3] == "data: validation: split from train"


def test_a_terminal_shows_a_bar_with_the_latest_figures() -> None:
    screen = io.StringIO()
    view = Terminal(Console(file=screen, force_terminal=True, width=120, color_system=None))
    with view:
        view.progress("tokenizing", 1, 10)
        view.start("a model", 100)
        view.step(STEP)
        view.evaluation(EVALUATION, best=False)
    shown = screen.getvalue()
    assert "training" in shown
    assert "50/100" in shown
    assert "10K tokens/s" in shown
    assert "em 81.50" in shown


def test_a_pipe_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "Console", lambda *a, **k: Console(file=io.StringIO()))
    assert type(choose_training_view()) is LineView


def test_the_last_step_shows_the_total_time_instead_of_an_eta(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView()
    view.start("a model", 50)
    view.step(STEP)
    line = capsys.readouterr().out.splitlines()[1]
    assert "ETA" not in line
    assert "  in " in line


def test_a_resumed_runs_time_left_counts_only_the_steps_made_since(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view, now = LineView(), [1000.0]
    monkeypatch.setattr(views.time, "monotonic", lambda: now[0])
    view.start("a model", 100)
    for step in range(41, 51):
        now[0] += 2
        view.advance(step)
    view.step(STEP)
    assert capsys.readouterr().out.splitlines()[1].endswith("ETA 1 min 40 s")  # 50 steps of 2 s


ROUGE = [f"rouge{kind}_{part}" for kind in ("1", "2", "L", "Lsum") for part in ("precision", "recall", "f1")]


def test_of_rouge_the_f1_scores_are_shown_and_what_chooses_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    record = replace(EVALUATION, scores=dict.fromkeys(ROUGE, 20.0))
    view = LineView()
    view.decide_by("rougeL_f1")
    view.evaluation(record, best=False)
    scores = "rouge1_f1 20.00  rouge2_f1 20.00  rougeL_f1 20.00  rougeLsum_f1 20.00"
    assert scores in capsys.readouterr().out
    assert "precision" not in scores
    assert views.choose_shown(ROUGE, "rouge2_recall") == ["rouge1_f1", "rouge2_f1", "rougeL_f1", "rouge2_recall"]
    assert views.choose_shown(["em", "f1"], "loss") == ["em", "f1"]


def test_preparing_data_has_lines_and_evaluating_has_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view, now = LineView(), [1000.0]
    monkeypatch.setattr(views.time, "monotonic", lambda: now[0])
    for done in (0, 10):
        now[0] += 6
        view.progress("mine.csv: splitting", done, 100)
    view.start("a model", 100)
    for done in (0, 10):
        now[0] += 6
        view.progress("evaluating", done, 100)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["mine.csv: splitting: 10 of 100, 10% (about 54 s left)", "a model"]
