from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.plan.answer import Answer

QUICK = ["--no-data", "--source-tokens", "48", "--target-tokens", "6", "train.batch_examples=4"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answer, Path]:
    """One plan of the demo's model for a card, and the page that comes with it."""
    folder = tmp_path_factory.mktemp("plan")
    environment = {"SEQFIT_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    page = folder / "plan.html"
    command = [sys.executable, "-m", "seqfit", "plan", "demo", *QUICK, "allow=[]", "--gpu", "rtx3090", "--json"]
    done = subprocess.run([*command, "--html", str(page)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Answer.from_json(json.loads(done.stdout)), page


def test_a_plan_chooses_a_way_that_fits_and_says_why_not_the_others(planned: tuple[Answer, Path]) -> None:
    answer, _ = planned
    assert answer.chosen is not None
    assert answer.chosen.fits
    assert answer.chosen.predicted_bytes < answer.capacity_bytes
    others = [way for way in answer.ways if way.label != answer.chosen.label]
    assert others
    assert all(way.why_not for way in others)
    assert "lossy" in dict(answer.refused)["LoRA"]


def test_the_page_shows_the_memory_of_a_step(planned: tuple[Answer, Path]) -> None:
    text = planned[1].read_text("utf-8")
    assert "Plan for NVIDIA GeForce RTX 3090" in text
    assert "The cause of the peak" in text
    assert "optimizer state" in text


def test_the_terminal_shows_answer_table_and_anatomy(
    planned: tuple[Answer, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.cli.plan_view import print_difference, print_plan

    monkeypatch.setenv("COLUMNS", "160")
    answer, _ = planned
    print_plan(answer, explain=True)
    print_difference(answer, answer, ["max_source_tokens=9"])
    shown = capsys.readouterr().out
    assert "best: fp32" in shown
    assert "CUDA context" in shown
    assert "max_source_tokens=9" in shown


def test_a_stored_plan_needs_no_torch(planned: tuple[Answer, Path]) -> None:
    cache = planned[1].parent / "cache"
    program = (
        "import sys, seqfit.cli.main as m; "
        f"code = m.main(['plan', 'demo', *{QUICK!r}, 'allow=[]', '--gpu', 'rtx3090', '--json']); "
        "print(code or 0, 'torch' in sys.modules, file=sys.stderr)"
    )
    environment = {"SEQFIT_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1] == "0 False"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx3099"], "Did you mean rtx3090"),
        (["--gpu", "a100"], "a100-40"),
        (["--gpus", "0"], "at least one"),
        (["--no-data"], "--source-tokens 512"),
        (["--no-data", "--source-tokens", "0", "--target-tokens", "3"], "at least one token"),
    ],
)
def test_what_cannot_be_planned_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "demo", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
