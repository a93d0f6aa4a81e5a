from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.cli.plan import describe_remedies, print_difference, print_gpus, print_plan
from seqfit.model_configs import find_known_model
from seqfit.planning.report import PlannedStrategy, PlanReport, Refusal

TINY_V1_1 = {
    **{"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "vocab_size": 96},
    **{"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
}
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
    assert all(one.why_not or one.needs for one in others)
    lora = next(one for one in others if "LoRA" in one.label)
    assert lora.needs == "allow=[lora]"
    assert {refusal.allow for refusal in report.refused} == {"", "trim"}  # no data to count tokens in


def test_the_page_shows_the_memory_of_a_step(planned: tuple[PlanReport, Path]) -> None:
    text = planned[1].read_text("utf-8")
    assert "Plan for NVIDIA GeForce RTX 3090" in text
    assert "Cause of the peak" in text
    assert "optimizer state" in text


def test_the_terminal_shows_the_best_strategy_the_table_and_the_peak(
    planned: tuple[PlanReport, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    report, _ = planned
    print_plan(report, explain=True)
    print_difference(report, report, ["max_source_tokens=9"])
    shown = capsys.readouterr().out
    assert "best: fp32" in shown
    assert "CUDA context" in shown
    assert "max_source_tokens=9" in shown


def test_what_is_known_early_is_not_part_of_the_answer(planned: tuple[PlanReport, Path]) -> None:
    """`planned` parses all of stdout; here what goes to stderr."""
    folder = planned[1].parent
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(io.StringIO()) as early, redirect_stdout(io.StringIO()):
        patch.setenv("SEQFIT_CACHE", str(folder / "another"))
        assert not main(["plan", "demo", *QUICK, "allow=[]", "--gpu", "t4"])
    assert early.getvalue().startswith("planning ")
    assert "searching for the best" in early.getvalue()


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
    refused = [Refusal("LoRA", "lossy", "lora"), Refusal("bf16", "the GPU has none")]
    report = make_report(*strategies, refused=refused)
    assert report.answer == "Does not fit: the smallest, bf16 in micro-batches of 512 tokens, needs 15.0 of 10.0 GiB."
    shown = describe_remedies(report)
    assert "5.0 GiB (50.0%) too much" in shown
    assert "allow something lossy (LoRA), a GPU with at least 15.0 GiB (--gpu), more GPUs (--gpus)" in shown


def test_a_strategy_that_fits_by_formula_only_is_the_answer() -> None:
    sharded = replace(make_strategy("fp32", "fsdp x 2", 8, fits=True), by_formula=True, gpus=2)
    report = make_report(make_strategy("fp32", "one GPU", 15, fits=False), sharded)
    assert report.answer == "Fits: fp32 on fsdp x 2, 8.0 of 10.0 GiB per GPU, 1.0 s per step, 10.0 s for your data."


def test_the_best_is_the_fastest_also_on_several_gpus_and_as_the_recipe_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = replace(make_strategy("bf16", "one GPU", 8, fits=True), overrides=["strategy.precision=bf16"])
    shared = replace(chosen, layout="ddp x 2", by_formula=True, gpus=2, predicted_step_seconds=0.6)
    shared = replace(shared, overrides=["strategy.precision=bf16", "strategy.parallel=ddp"])
    report = replace(make_report(chosen, shared), chosen=chosen)
    assert report.best == shared
    print_plan(report, explain=False)
    assert "use it: seqfit train RECIPE --nproc 2 strategy.precision=bf16 strategy.parallel=ddp" in " ".join(
        capsys.readouterr().out.split()
    )
    stated = replace(make_strategy("mine", "one GPU", 9, fits=True), predicted_step_seconds=0.5)
    assert replace(report, stated=stated).best == stated
    assert replace(report, stated=replace(stated, fits=False)).best == shared
    a_tie = replace(shared, predicted_step_seconds=0.99)
    assert replace(make_report(chosen, a_tie), chosen=chosen).best == chosen


def test_ten_rows_are_shown_unless_all_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    strategies = [
        replace(make_strategy(f"way {n}", "one GPU", 8, fits=True), predicted_step_seconds=n) for n in range(1, 15)
    ]
    strategies.append(replace(make_strategy("far", "fsdp x 2", 3, fits=True), predicted_step_seconds=99.0, gpus=2))
    strategies[12] = replace(strategies[12], predicted_bytes=5 * 2**30)  # no other is both faster and smaller
    report = replace(make_report(*strategies), chosen=strategies[0])
    print_plan(report, explain=False)
    shown = capsys.readouterr().out
    assert [n for n in range(1, 15) if f"way {n} " in shown] == [*range(1, 9), 13]
    assert "far" in shown
    assert shown.count("Pareto-optimal ") + shown.count("Pareto-optimal\n") == 3
    assert "5 more strategies: --all" in shown
    print_plan(report, explain=False, all_rows=True)
    assert "way 12 " in capsys.readouterr().out


def test_the_answer_names_strategy_memory_and_time() -> None:
    chosen = make_strategy("bf16, gradient checkpointing (every block)", "one GPU", 8, fits=True)
    report = replace(make_report(chosen), chosen=chosen, total_steps=3600, basis="50,000 rows (3 epochs)")
    assert report.answer == (
        "Fits: bf16 with gradient checkpointing (every block), 8.0 of 10.0 GiB, 1.0 s per step, "
        "1 h 00 min for 50,000 rows (3 epochs)."
    )


def test_where_more_of_the_gpus_hold_it_their_number_is_said() -> None:
    enough = replace(make_strategy("fp32", "fsdp x 4", 9, fits=True), by_formula=True, gpus=4)
    report = replace(make_report(make_strategy("fp32", "one GPU", 15, fits=False)), enough=enough)
    assert report.answer.endswith("4 of these GPUs would hold it (fsdp x 4, 9.0 GiB each, by formula).")


def test_an_answer_ends_with_0_and_with_check_1_where_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = make_report(make_strategy("fp32", "one GPU", 15, fits=False))
    monkeypatch.setattr("seqfit.planning.plan.plan_for_gpus", lambda *_, **__: [report])
    assert not main(["plan", "demo"])
    assert "5.0 GiB (50.0%) too much" in " ".join(capsys.readouterr().out.split())
    assert main(["plan", "demo", "--check"]) == 1


def test_several_gpus_are_rows_with_time_and_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    chosen = make_strategy("bf16", "one GPU", 8, fits=True)
    fits = replace(make_report(chosen), chosen=chosen, total_steps=7200)
    print_gpus([fits, make_report(make_strategy("fp32", "one GPU", 15, fits=False))], [1.5, 9.0])
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert [part.strip() for part in first.split("  ") if part] == [
        *("a GPU", "yes", "bf16", "8.0 GiB of 10.0 GiB", "1.0 s", "2 h 00 min", "3.00")
    ]
    assert second.split() == ["a", "GPU", "no", "fp32", "15.0", "GiB", "of", "10.0", "GiB"]


def test_a_model_alone_is_planned_on_several_gpus_and_says_what_it_assumed(
    tiny_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ["--source-tokens", "24", "--target-tokens", "4", "--rows", "900", "--epochs", "2", "allow=[]"]
    gpus = ["--gpu", "a100", "--gpu", "2x RTX 3090"]
    assert not main(["plan", str(tiny_model("t5")), *gpus, *options, "--price", "1"])
    shown = capsys.readouterr().out
    assert "'a100' is read as a100-40-sxm, the commonest; others are" in shown
    assert "A100-SXM4-40GB  " in shown
    assert "2 x GeForce RTX 3090" in shown
    assert "900 rows" in shown
    assert "(2 epochs)" in shown
    assert "assumed: task generate (--task), batches of 32 (--batch), adamw (--optimizer)" in shown
    assert "--rows" not in shown


def test_a_known_model_is_planned_without_a_network_or_a_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config is made small here: the plan is the point, not the size."""
    known = replace(find_known_model("google/flan-t5-small"), config=TINY_V1_1)  # type: ignore[type-var]
    monkeypatch.setattr("seqfit.model.load.find_known_model", lambda _: known)
    options = ["--gpu", "t4", "--batch", "2", "--source-tokens", "24", "allow=[]"]
    assert not main(["plan", "Flan-T5-small", *options])
    shown = capsys.readouterr().out
    assert re.search(
        r"^Fits: fp32, .* of 14\.6 GiB, .* per step, .* for 10,000 rows \(3 epochs\)\.$", shown, re.MULTILINE
    )
    assert "seqfit train --data FILE --model google/flan-t5-small train.batch_examples=2" in shown
    assert "64 target tokens (--target-tokens)" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx3099"], "Did you mean rtx3090"),
        (["--gpu", "h10"], "Did you mean"),
        (["--gpu", "2x t4", "--gpus", "3"], "They name different numbers of GPUs"),
        (["--gpu", "0x t4"], "at least one"),
        (["--gpu", "t4", "--gpu", "l4", "--explain"], "It shows one plan"),
        (["--gpu", "t4", "--all-gpus"], "It stands for all of them"),
        (["--gpu", "t4", "--price", "1", "--price", "2"], "one for each --gpu"),
        (["--price", "-1"], "a number of 0 or more"),
        (["--batch", "0"], "Give a number of 1 or more: --batch 32"),
        (["--rows", "0"], "--rows 10000"),
        (["--model", "t5-base"], "a recipe is given together with"),
        (["--gpus", "0"], "at least one"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flan-t5-lage"], "Did you mean 'flan-t5-large'?"),
        (["google/flan-t5-lage"], "Did you mean 'google/flan-t5-large'?"),
        (["google/flan-t5-base", "--model", "t5-base"], "A plan is for one model"),
        (["bert-base-uncased", "--task", "qa"], "The tasks of an encoder are"),
        (["bert-base-uncased", "--source-tokens", "600"], "has positions for 512 tokens"),
        ([], "Try seqfit plan google/flan-t5-base"),
    ],
)
def test_a_model_that_cannot_be_planned_is_reported(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments, "--gpu", "t4"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
