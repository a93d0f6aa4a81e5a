from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.cli.plan import describe_shortage
from seqfit.planning.report import PlannedStrategy, PlanReport, Refusal

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


def test_a_plan_chooses_a_strategy_that_fits_and_says_why_not_the_others(planned: tuple[PlanReport, Path]) -> None:
    report, _ = planned
    assert report.chosen is not None
    assert report.chosen.fits
    assert report.chosen.predicted_bytes < report.capacity_bytes
    others = [one for one in report.strategies if one.label != report.chosen.label]
    assert others
    assert all(one.why_not for one in others)
    assert "lossy" in next(refusal.why for refusal in report.refused if refusal.what == "LoRA")


def test_the_page_shows_the_memory_of_a_step(planned: tuple[PlanReport, Path]) -> None:
    text = planned[1].read_text("utf-8")
    assert "Plan for NVIDIA GeForce RTX 3090" in text
    assert "Cause of the peak" in text
    assert "optimizer state" in text


def test_the_terminal_shows_the_best_strategy_the_table_and_the_peak(
    planned: tuple[PlanReport, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.cli.plan import print_difference, print_plan

    monkeypatch.setenv("COLUMNS", "160")
    report, _ = planned
    print_plan(report, explain=True)
    print_difference(report, report, ["max_source_tokens=9"])
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


def make_report(*strategies: PlannedStrategy, refused: list[Refusal] | None = None) -> PlanReport:
    """A plan for a GPU of 10 GiB that has chosen none of these strategies."""
    return PlanReport(
        target="a GPU",
        target_kind="gpu",
        capacity_bytes=10 * 2**30,
        real_tokens_per_step=100.0,
        total_steps=10,
        rates_source="",
        chosen=None,
        stated=None,
        peak=None,
        strategies=list(strategies),
        pareto=[],
        refused=refused or [],
        events=[],
    )


def make_strategy(label: str, layout: str, gibibytes: int, *, fits: bool) -> PlannedStrategy:
    return PlannedStrategy(label, layout, 512, 4.0, gibibytes * 2**30, 1.0, fits, [])


def test_where_nothing_fits_the_closest_strategy_and_what_it_lacks_are_reported() -> None:
    strategies = [make_strategy("fp32", "one GPU", 40, fits=False), make_strategy("bf16", "one GPU", 15, fits=False)]
    shown = describe_shortage(
        make_report(*strategies, refused=[Refusal("LoRA", "lossy", "lora"), Refusal("bf16", "the GPU has none")])
    )
    assert shown.startswith("Nothing fits. The closest, bf16 (one GPU) with 512 tokens per micro-batch")
    assert "needs 15.0 GiB of 10.0 GiB: 5.0 GiB (50.0%) too much" in shown
    assert "allow something lossy (LoRA), a GPU with more memory" in shown


def test_a_strategy_that_fits_by_formula_only_lacks_nothing() -> None:
    strategies = [make_strategy("fp32", "one GPU", 15, fits=False), make_strategy("fp32", "fsdp x 2", 8, fits=True)]
    shown = describe_shortage(make_report(*strategies))
    assert shown.startswith("Nothing fits for certain. The closest, fp32 (fsdp x 2)")
    assert "needs 8.0 GiB of 10.0 GiB" in shown
    assert "too much" not in shown


def test_a_plan_that_chooses_nothing_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = make_report(make_strategy("fp32", "one GPU", 15, fits=False))
    monkeypatch.setattr("seqfit.planning.plan.plan", lambda *_, **__: report)
    assert main(["plan", "demo"]) == 1
    assert "5.0 GiB (50.0%) too much" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx3099"], "Did you mean rtx3090"),
        (["--gpu", "h10"], "Did you mean"),
        (["--gpu", "a100"], "a100-40"),
        (["--gpus", "0"], "at least one"),
        (["--no-data"], "--source-tokens 512"),
        (["--no-data", "--source-tokens", "0", "--target-tokens", "3"], "at least one token"),
        (
            ["--no-data", "--source-tokens", "9", "--target-tokens", "0"],
            "Give a length of 1 or more: --target-tokens 64",
        ),
        (["--what-if", "max_source_tokens=0"], "at least one token"),
        (["strategy={attention: eager, batching: packed}"], "Set strategy.batching=grouped"),
        (["strategy={optimizer_in_backward: true}"], "needs the norm of all gradients"),
        (["strategy={optimizer: 8bit}"], "allow=[bf16, 8bit]"),
    ],
)
def test_what_cannot_be_planned_is_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "demo", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
