from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqfit.cli.main import main
from tests.comparison.comparisons import CPU, pretend


@pytest.fixture(autouse=True)
def _one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqfit.comparison.compare.probe_machine", lambda: CPU)


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(
    recipe_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(recipe_file.parent.rglob("*"))
    words = ["--strategies", "classic", "--seeds", "0,1", "--repeats", "2", "--gpu", "v100-16-sxm", "--budget", "20m"]
    assert main(["compare", "mine.yaml", *words, "--vary", "train.learning_rate=1e-4,1e-3", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mine: 24 trials (6 candidates x seeds 0, 1 x 2 repeats), 5 steps each, of which 3 are warm-up"
    assert max(map(len, lines[1:12])) <= 100
    named = [line.split()[0] for line in lines[3:] if not line.startswith(" ")]  # overrides may take several lines
    assert named[:8] == [
        "baseline",
        "fp16",
        "accumulation",
        "recompute",
        "adafactor",
        "all",
        "learning_rate=1e-4",
        "learning_rate=1e-3",
    ]
    assert "predictions for: this machine, Tesla V100-SXM2-16GB" in lines
    assert set(recipe_file.parent.rglob("*")) == before


WRONG = {
    "a strategy that is none": (["-s", "baseline,recompue"], "Did you mean 'recompute'?"),
    "a set that is none": (["-s", "clasic"], "Did you mean 'classic'?"),
    "fields that disagree": (["-s", "baseline,in_backward"], "train.clip_norm is 1"),
    "a card that could be several": (["--gpu", "v100"], "could be v100-16-sxm"),
    "a seed in words": (["--seeds", "one"], "seeds.0: 'one' is given"),
    "a budget in words": (["--budget", "soon"], "'soon' is not a time"),
    "no steps to measure": (["--steps", "3"], "At least 2 steps must be timed"),
    "nothing to vary": (["--vary", "train.learning_rate="], "Write it as --vary train.learning_rate=1e-4,3e-4."),
    "a field to vary that is none": (["--vary", "train.learning_rat=1"], "Did you mean 'learning_rate'?"),
    "a recipe with a mistake": (["train.stepps=1"], "Did you mean 'steps'?"),
    "a matrix that is not there": (["--matrix", "nothing.yaml"], "No such file"),
    "a device that is none": (["--device", "gpu"], "'gpu' is none of auto, cpu, cuda"),
    "a file as a folder": (["--out", "rows.jsonl"], "already exists"),
    "a comparison that is not there": (["--resume"], "has no comparison of 'mine'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_reported_before_anything_starts(case: str, refused: Callable[[Sequence[str], str], None]) -> None:
    arguments, message = WRONG[case]
    refused(["compare", "mine.yaml", *arguments], message)


@pytest.mark.usefixtures("recipe_file")
def test_a_comparison_ends_with_its_tables_and_its_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqfit.comparison.repeats.run_trial", pretend)
    changes: dict[str, Any] = {"tokenize_ahead": lambda *_: None, "predict_candidates": lambda *_, **__: []}
    for name, function in changes.items():
        monkeypatch.setattr(f"seqfit.comparison.compare.{name}", function)
    words = ["compare", "mine.yaml", "-s", "baseline,recompute", "--repeats", "1", "--out", "c"]
    monkeypatch.setattr(sys, "argv", ["seqfit", *words])
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "1 of 1 repeats finished" in said
    assert "recompute" in said.split("1 of 1 repeats finished")[1]
    assert said.endswith("comparison: c\nreport: c/report.html\n")
    assert "command: seqfit compare mine.yaml -s baseline,recompute" in Path("c/comparison.yaml").read_text()


@pytest.mark.usefixtures("recipe_file")
def test_ctrl_c_prints_the_table_of_what_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seqfit.comparison.compare.tokenize_ahead", lambda *_: None)
    monkeypatch.setattr("seqfit.comparison.repeats.run_trial", stop)
    words = ["compare", "mine.yaml", "-s", "baseline,recompute", "--repeats", "1", "--budget", "5m", "--out", "c"]
    assert main(words) != 0
    said = capsys.readouterr().out
    assert "No measurements can be compared: there are none." in said
    assert "Missing: repeats (all have 0 of 1)." in said
    assert "report: c/report.html" in said
