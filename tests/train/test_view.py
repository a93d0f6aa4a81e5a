from __future__ import annotations

import io

import pytest
from rich.console import Console

from seqfit.rundir.records import EvaluationRecord, EventRecord, StepRecord
from seqfit.train import view as views
from seqfit.train.view import Lines, Terminal, choose_view

STEP = StepRecord(
    step=50, epoch=0.5, loss=1.25, learning_rate=3e-4, gradient_norm=0.7, examples=32, source_tokens=900,
    target_tokens=100, padded_tokens=12, micro_batches=1, step_seconds=0.1, tokens_per_second=10_000.0,
    memory_bytes=3 * 2**30, time=0.0,
)  # fmt: skip
EVALUATION = EvaluationRecord(50, "validation", 0.5, {"em": 81.5, "f1": 90.0}, 200, 3.0, 0.0)


def test_plain_lines_tell_loss_speed_memory_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    view = Lines()
    view.start("a model", 100)
    view.step(STEP)
    view.evaluation(EVALUATION, best=True)
    view.event(EventRecord(0.0, "data", "validation: cut from train"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a model"
    assert lines[1].startswith("step 50/100  loss 1.2500  lr 3.0e-04  10K tokens/s  3.0 GiB  ETA ")
    assert lines[2] == "step 50: validation loss 0.5000  em 81.50  f1 90.00  (best so far)  [200 rows, 3.0 s]"
    assert lines[3] == "data: validation: cut from train"


def test_a_terminal_shows_a_bar_with_the_newest_figures() -> None:
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
    assert type(choose_view()) is Lines
