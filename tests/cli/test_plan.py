from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.cli.plan import say_miss
from seqfit.planning.report import PlannedStrategy, PlanReport

QUICK = ["--no-data", "--source-tokens", "48", "--target-tokens", "6", "train.batch_examples=4"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[PlanReport, Path]:
    """One plan of the demo's model for a card, and the page that comes with it."""
    folder = tmp_path_factory.mktemp("plan")
    page, printed = folder / "plan.html", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setenv("SEQFIT_CACHE", str(folder / "cache"))
        assert not main(["plan", "demo", *QUICK, "allow=[]", "--gpu", "rtx3090", "--json", "--html", str(page)])
    return PlanReport.from_json(json.loads(printed.getvalue())), page


def test_a_plan_chooses_a_way_that_fits_and_says_why_not_the_others(planned: tuple[PlanReport, Path]) -> None:
    answer, _ = planned
    assert answer.chosen is not None
    assert answer.chosen.fits
    assert answer.chosen.predicted_bytes < answer.capacity_bytes
    others = [way for way in answer.ways if way.label != answer.chosen.label]
    assert others
    assert all(way.why_not for way in others)
    assert "lossy" in dict(answer.refused)["LoRA"]


def test_the_page_shows_the_memory_of_a_step(planned: tuple[PlanReport, Path]) -> None:
    text = planned[1].read_text("utf-8")
    assert "Plan for NVIDIA GeForce RTX 3090" in text
    assert "The cause of the peak" in text
    assert "optimizer state" in text


def test_the_terminal_shows_answer_table_and_anatomy(
    planned: tuple[PlanReport, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.cli.plan import print_difference, print_plan

    monkeypatch.setenv("COLUMNS", "160")
    answer, _ = planned
    print_plan(answer, explain=True)
    print_difference(answer, answer, ["max_source_tokens=9"])
    shown = capsys.readouterr().out
    assert "best: fp32" in shown
    assert "CUDA context" in shown
    assert "max_source_tokens=9" in shown


def test_a_stored_plan_needs_no_torch(planned: tuple[PlanReport, Path]) -> None:
    cache = planned[1].parent / "cache"
    program = (
        "import sys, seqfit.cli.main as m; "
        f"code = m.main(['plan', 'demo', *{QUICK!r}, 'allow=[]', '--gpu', 'rtx3090', '--json']); "
        "print(code or 0, 'torch' in sys.modules, file=sys.stderr)"
    )
    environment = {"SEQFIT_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1] == "0 False"


def make_answer(*ways: PlannedStrategy, refused: list[tuple[str, str]] | None = None) -> PlanReport:
    """A plan for a card of 10 GiB that has chosen none of these ways."""
    return PlanReport(
        target="a card",
        target_kind="gpu",
        capacity_bytes=10 * 2**30,
        real_tokens_per_step=100.0,
        total_steps=10,
        rates_source="",
        chosen=None,
        asked=None,
        explained=None,
        groups=list(ways),
        front=[],
        refused=refused or [],
        events=[],
    )


def make_way(label: str, spread: str, gibibytes: int, *, fits: bool) -> PlannedStrategy:
    return PlannedStrategy(label, spread, 512, 4.0, gibibytes * 2**30, 1.0, fits, [])


def test_where_nothing_fits_the_closest_way_and_its_miss_are_told() -> None:
    ways = [make_way("fp32", "one device", 40, fits=False), make_way("bf16", "one device", 15, fits=False)]
    told = say_miss(make_answer(*ways, refused=[("LoRA", "lossy: 'allow=[lora]'"), ("bf16", "the card has none")]))
    assert told.startswith("Nothing fits. The closest, bf16 (one device) with micro-batches of 512 tokens")
    assert "needs 15.0 GiB of 10.0 GiB and misses by 5.0 GiB (50.0%)" in told
    assert "allow something lossy (LoRA), a card with more memory" in told


def test_a_way_that_fits_by_formula_alone_does_not_miss() -> None:
    ways = [make_way("fp32", "one device", 15, fits=False), make_way("fp32", "fsdp, 2 GPUs", 8, fits=True)]
    told = say_miss(make_answer(*ways))
    assert told.startswith("Nothing fits for certain. The closest, fp32 (fsdp, 2 GPUs)")
    assert "takes 8.0 GiB of 10.0 GiB" in told
    assert "misses" not in told


def test_a_plan_that_chooses_nothing_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = make_answer(make_way("fp32", "one device", 15, fits=False))
    monkeypatch.setattr("seqfit.planning.plan.plan", lambda *_, **__: answer)
    assert main(["plan", "demo"]) == 1
    assert "misses by 5.0 GiB" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx3099"], "Did you mean rtx3090"),
        (["--gpu", "h10"], "Did you mean"),
        (["--gpu", "a100"], "a100-40"),
        (["--gpus", "0"], "at least one"),
        (["--no-data"], "--source-tokens 512"),
        (["--no-data", "--source-tokens", "0", "--target-tokens", "3"], "at least one token"),
        (["--no-data", "--source-tokens", "9", "--target-tokens", "0"], "Give a length from 1 on: --target-tokens 64"),
        (["--what-if", "max_source_tokens=0"], "at least one token"),
        (["strategy={attention: eager, batching: packed}"], "Set strategy.batching=grouped"),
        (["strategy={optimizer_in_backward: true}"], "needs the norm of all gradients"),
        (["strategy={optimizer: 8bit}"], "allow=[bf16, 8bit]"),
    ],
)
def test_what_cannot_be_planned_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "demo", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
