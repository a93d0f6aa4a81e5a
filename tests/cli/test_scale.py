from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seqfit.cli.main import main


def test_a_dry_run_says_what_would_be_started(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(recipe_file.parent.rglob("*"))
    words = ["--nproc", "1,2", "--parallel", "ddp,fsdp", "--weak", "--gpu", "h100-sxm", "--upto", "16", "--out", "new"]
    assert main(["scale", "mine.yaml", "train.batch_examples=8", *words, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "measured: 3 repeats of 5 steps, after 2 warm-up steps",
        "  1 process, global batch of 8 examples",
        "  ddp, 2 processes, global batch of 16 examples",
        "  fsdp, 2 processes, global batch of 16 examples",
        "predicted: 1 to 16 x NVIDIA H100 80GB HBM3, 8 per machine",
    ]
    assert set(recipe_file.parent.rglob("*")) == before


WRONG = {
    "no processes": (["--nproc", "0"], "--nproc is '0'. It lists numbers of processes"),
    "processes in words": (["--nproc", "two"], "Write it as --nproc 1,2,4."),
    "an unknown strategy": (["--parallel", "dpp"], "Did you mean 'ddp'?"),
    "no steps": (["--steps", "0"], "--steps is 0. It is at least 1. Give --steps 1 or more."),
    "no repeats": (["--repeats", "0"], "--repeats is 0."),
    "a card that is none": (["--gpu", "h1000"], "'h1000' is not in the table of GPUs."),
    "a card that could be several": (["--gpu", "a100"], "Give one of these names."),
    "a number of cards without a card": (["--upto", "64"], "--upto is given without --gpu."),
    "no cards": (["--gpu", "h100-sxm", "--upto", "0"], "--upto is 0."),
    "a network in bits": (["--gpu", "h100-sxm", "--network", "200Gb/s"], "Write it as --network 25GB/s"),
    "a pipeline over hundreds": (["--gpu", "h100-sxm", "--parallel", "pipeline"], "Leave pipeline out of --parallel"),
    "a recipe with a mistake": (["train.stepps=1"], "Did you mean 'steps'?"),
    "a strategy that can't train the recipe": (
        ["--parallel", "fsdp", "train.optimizer.name=adafactor"],
        "It looks at whole weights",
    ),
    "a file as a folder": (["--out", "rows.jsonl"], "which is a file."),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_reported_before_anything_starts(case: str, refused: Callable[[Sequence[str], str], None]) -> None:
    arguments, message = WRONG[case]
    refused(["scale", "mine.yaml", *arguments], message)


def test_cards_elsewhere_are_predicted_without_starting_processes(
    tiny_model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"question": f"w3 w{n}", "answer": f"w{n}"} for n in range(4, 40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    recipe = {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": str(tmp_path / "rows.jsonl")},
        "train": {"steps": 1, "batch_examples": 4},
        "strategy": {"micro_batch_tokens": 512},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["scale", "recipe.yaml", "--gpu", "a100-40-sxm", "--upto", "8", "--out", "report"]) == 0
    said = capsys.readouterr().out
    assert "a global batch has 4 examples on average, so more than 4 GPUs can't help with strong scaling." in said
    assert "4 without an example" in said
    assert "Measured" not in said
    stored = json.loads(Path("report/scaling.json").read_text())
    assert stored["rows"] == []
    assert [row["processes"] for row in stored["cards"]["rows"]] == [1, 2, 4, 8] * 2
    assert Path("report/scaling.md").read_text().count("predicted") >= 8
