"""What a plan proposes, training accepts: every strategy it lists passes the checks that a run starts with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import probe_machine
from seqfit.model.load import load_model
from seqfit.parallel.pipeline import check_can_split
from seqfit.planning import search as search_module
from seqfit.planning.candidates import Variant
from seqfit.planning.cluster import GpuLayout
from seqfit.planning.placement import PlanRequest
from seqfit.planning.report import AssumedLengths, PlannedStrategy
from seqfit.planning.request import build_request, make_plan, make_plans, summarise_plan
from seqfit.planning.search import search, trace_variant
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import card_target, cpu_target
from seqfit.recipe.schema import Recipe
from seqfit.strategy.conflicts import check_processes
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import LOSSY
from seqfit.validation import load_checked_recipe

SHORT = AssumedLengths(source_tokens=32, target_tokens=8, without_data=True)
TRAINS: dict[str, dict[str, Any]] = {
    "default": {},
    "not clipped": {"clip_norm": None},
    "not clipped, skips": {"clip_norm": None, "when_not_finite": "skip"},
    "retried in fp32": {"when_not_finite": "higher-precision-retry"},
    "Adafactor, not clipped": {"optimizer": {"name": "adafactor"}, "clip_norm": None},
}
ALLOWED: list[tuple[str, list[str]]] = [("rtx3090", ["bf16"]), ("rtx3090", list(LOSSY)), ("t4", list(LOSSY))]


@pytest.fixture(scope="module", autouse=True)
def _traced_once() -> Iterator[None]:
    """One trace of a model stands for all variants: what is listed does not depend on its figures."""
    known: dict[str | None, StepModel] = {}

    def trace(request: PlanRequest, variant: Variant) -> StepModel:
        if request.model.path not in known:
            known[request.model.path] = trace_variant(request, variant)
        return known[request.model.path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqfit.planning.search.trace_variant", trace)
        yield


@pytest.fixture
def make_recipe(tiny_model: Callable[[str], Path]) -> Callable[..., Recipe]:
    def make(**fields: Any) -> Recipe:
        values = {
            "model": {"path": str(tiny_model("t5"))},
            "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
            "data": {"path": "rows.jsonl"},
        }
        return load_checked_recipe({**values, **fields})

    return make


def list_strategies(recipe: Recipe, card: str) -> list[tuple[PlannedStrategy, GpuLayout]]:
    """Those for two GPUs on which nothing fits, so that none is left out because another is better."""
    request = build_request(recipe, replace(card_target(find_card(card), 2), capacity_bytes=1), SHORT)
    plan = search(replace(request, fixed={"micro_batch_tokens": 512}))
    strategies = summarise_plan(request, plan, None).strategies
    return [(planned, found.layout) for planned, found in zip(strategies, plan.best_of_each, strict=True)]


@pytest.mark.parametrize("train", TRAINS.values(), ids=TRAINS)
@pytest.mark.parametrize(("card", "allow"), ALLOWED)
def test_training_accepts_every_strategy_that_a_plan_for_two_gpus_lists(
    card: str, allow: list[str], train: dict[str, Any], make_recipe: Callable[..., Recipe]
) -> None:
    recipe = make_recipe(train=train, allow=allow)
    model = load_model(recipe.model)
    listed = list_strategies(recipe, card)
    for planned, layout in listed:
        strategy = load_strategy(load_checked_recipe(recipe, planned.overrides))
        check_processes(strategy, layout.count)
        assert (strategy.parallel == "auto") == (layout.count == 1), planned
        if strategy.parallel == "pipeline":
            check_can_split(model, layout.count)
    assert {"one GPU", "ddp x 2", "pipeline x 2"} <= {planned.layout for planned, _ in listed}


def test_a_plan_for_two_gpus_lists_fsdp_where_training_has_it(make_recipe: Callable[..., Recipe]) -> None:
    with_adamw, with_adafactor = (
        {planned.layout for planned, _ in list_strategies(make_recipe(train={"optimizer": {"name": name}}), "rtx3090")}
        for name in ("adamw", "adafactor")
    )
    assert with_adamw - with_adafactor == {"fsdp x 2", "fsdp x 2, offload"}


def test_offload_on_one_gpu_is_refused_before_the_data_are_read(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(strategy={"parallel": "fsdp", "offload": True})
    with pytest.raises(RecipeError, match=r"strategy\.offload is on, and one process trains"):
        make_plan(recipe, card_target(find_card("rtx3090"), 1), AssumedLengths())


def test_offload_on_two_gpus_is_a_row_of_the_table(make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(strategy={"parallel": "fsdp", "offload": True}, allow=[])
    report = make_plan(recipe, card_target(find_card("rtx3090"), 2), SHORT)
    assert report.stated is None
    assert any("see the offload rows" in event for event in report.events)
    assert any("strategy.offload=true" in planned.overrides for planned in report.strategies)


def test_what_runs_alike_on_two_gpus_is_traced_once(
    make_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    traced: list[Variant] = []
    stands_for_all = search_module.trace_variant

    def trace(request: PlanRequest, variant: Variant) -> StepModel:
        traced.append(variant)
        return stands_for_all(request, variant)

    monkeypatch.setattr(search_module, "trace_variant", trace)
    targets = [card_target(find_card(name), 1) for name in ("rtx3090", "a100-80-sxm")]
    reports = list(make_plans(make_recipe(allow=[]), targets, SHORT))
    assert [report.target for report in reports] == [target.name for target in targets]
    assert len(set(traced)) == len(traced) > 1


def test_the_question_and_a_first_answer_come_before_the_search_ends(make_recipe: Callable[..., Recipe]) -> None:
    heard: list[tuple[str, int]] = []  # line, how many variants were done

    def plan(**fields: Any) -> list[str]:
        heard.clear()
        done = [0]

        def progress(_: str, count: int, __: int | None) -> None:
            done[0] = count

        target = card_target(find_card("rtx3090"), 1)
        recipe = make_recipe(**fields)
        list(make_plans(recipe, [target], SHORT, progress, lambda line: heard.append((line, done[0]))))
        assert [count for _, count in heard] == [0, 0]
        return [line for line, _ in heard]

    question, first = plan(allow=["bf16"])
    assert "32 examples per step, up to 32 source and 8 target tokens" in question
    assert "RTX 3090: bf16 fits, " in first
    _, stated = plan(strategy={"precision": "fp32"})
    assert "RTX 3090: the recipe's strategy fits, " in stated


def test_where_nothing_fits_the_fewest_gpus_that_hold_it_are_found(
    make_recipe: Callable[..., Recipe], tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    config = json.loads((tiny_model("t5") / "config.json").read_text())
    wide = {**config, "d_model": 2048, "d_kv": 64, "num_heads": 32, "d_ff": 8192}  # NCCL's buffers weigh little then
    (tmp_path / "config.json").write_text(json.dumps(wide))
    recipe = make_recipe(allow=[], model={"path": str(tmp_path)})
    target = card_target(find_card("rtx3090"), 1)
    least = min(one.predicted_bytes for one in make_plan(recipe, target, SHORT).strategies)
    report = make_plan(recipe, replace(target, capacity_bytes=least - 1000), SHORT)
    assert report.best is None
    assert report.enough is not None
    assert report.enough.gpus == 2
    assert report.enough.predicted_bytes < least
    assert "2 of these GPUs would hold it" in report.answer


def test_without_data_rows_and_epochs_decide_the_steps_and_the_rest_is_listed(
    make_recipe: Callable[..., Recipe],
) -> None:
    recipe = make_recipe(allow=[], train={"epochs": 2})
    report = make_plan(recipe, card_target(find_card("rtx3090"), 1), replace(SHORT, rows=640))
    assert report.total_steps == 2 * 640 / 32
    assert report.basis == "640 rows (2 epochs)"
    assert report.assumptions == [
        "batches of 32 (--batch)",
        "adamw (--optimizer)",
        "64 rows per evaluation (eval.limit=N)",
    ]


@pytest.mark.parametrize(("kind", "warned"), [("native", False), ("emulated", True), ("none", True)])
def test_a_processor_without_bf16_instructions_is_known_to_be_one(
    kind: str, warned: bool, make_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqfit.planning.request.find_cpu_bf16", lambda: kind)
    recipe = make_recipe(allow=["bf16"], strategy={"precision": "bf16"})
    report = make_plan(recipe, cpu_target(probe_machine()), SHORT)
    assert any(event.startswith("This CPU has no bf16 instructions: its matrix") for event in report.events) == warned
    assert report.stated is not None
    assert report.stated in report.rows
