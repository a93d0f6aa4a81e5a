from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqfit.planning.report import (
    MemoryPart,
    PeakBreakdown,
    PlannedEvaluation,
    PlannedStrategy,
    PlanReport,
    Refusal,
    find_plan,
    plan_key,
    store_plan,
)
from seqfit.recipe.load import load_recipe

STRATEGY = PlannedStrategy("fp32", "one GPU", 4096, 1.0, 10, 0.5, True, ["strategy.precision=fp32"])
PEAK = PeakBreakdown(
    "fp32", 8, 9, 1, True, "weights", [MemoryPart("weights", 8, [MemoryPart("all", 8)])], ["forward"], {"weights": [8]}
)
REPORT = PlanReport(
    "card",
    "gpu",
    100,
    50.0,
    10,
    "data sheet",
    STRATEGY,
    None,
    PEAK,
    [STRATEGY],
    [STRATEGY],
    [Refusal("bf16", "no")],
    [],
)


def make_recipe(folder: Path) -> dict[str, object]:
    (folder / "data.jsonl").write_text('{"q": "a", "a": "b"}\n')
    return {
        "model": {"path": str(folder)},
        "task": {"name": "qa", "source": "{q}", "target": "{a}"},
        "data": {"path": str(folder / "data.jsonl")},
    }


def test_a_report_survives_being_stored() -> None:
    store_plan("key", REPORT)
    assert find_plan("key") == REPORT
    stored = json.loads(json.dumps(REPORT.to_json()))
    assert stored["chosen"]["label"] == stored["best"]["label"] == "fp32"
    assert stored["answer"] == REPORT.answer


def test_evaluations_count_in_the_hours_and_a_line_says_how_much() -> None:
    evaluated = replace(REPORT, evaluation=PlannedEvaluation(3, 1000, 4, 80, 65.0, 5 * 2**30, is_peak=True))
    assert REPORT.total_seconds == 10 * 0.5
    assert evaluated.total_seconds == 10 * 0.5 + 65.0
    expected = "evaluation: 1 min 05 s of 1 min 10 s (3 times 1,000 rows, 4 beams); memory 5.0 GiB, the peak"
    assert evaluated.describe_evaluation() == expected
    assert REPORT.describe_evaluation() is None
    assert PlanReport.from_json(json.loads(json.dumps(evaluated.to_json()))) == evaluated


def test_what_was_never_stored_or_is_corrupted_counts_as_none() -> None:
    assert find_plan("never") is None
    store_plan("truncated", REPORT)
    path = Path(os.environ["SEQFIT_CACHE"]) / "plans-4" / "truncated.json"
    path.write_text(path.read_text()[:50])
    assert find_plan("truncated") is None


def test_a_key_changes_with_recipe_data_and_target(tmp_path: Path) -> None:
    recipe = load_recipe(make_recipe(tmp_path))
    key = plan_key(recipe, {"gpu": "t4"})
    assert key == plan_key(recipe, {"gpu": "t4"})
    assert key != plan_key(recipe, {"gpu": "l4"})
    assert key != plan_key(load_recipe(make_recipe(tmp_path), ["train.batch_examples=7"]), {"gpu": "t4"})
    (tmp_path / "data.jsonl").write_text('{"q": "a", "a": "longer"}\n')
    assert key != plan_key(recipe, {"gpu": "t4"})


def test_json_has_the_range_of_every_figure() -> None:
    known = replace(STRATEGY, predicted_bytes=1000, bytes_error=0.25, seconds_error=0.25)
    stored = replace(REPORT, strategies=[known]).to_json()["strategies"][0]
    assert (stored["low_bytes"], stored["high_bytes"]) == (800, 1333)
    assert stored["low_seconds"] < known.predicted_step_seconds < stored["high_seconds"]


def make_strategy(label: str, size: int, seconds: float, **fields: Any) -> PlannedStrategy:
    """On a GPU of 100 bytes, predicted to within 10%."""
    return replace(
        STRATEGY,
        label=label,
        predicted_bytes=size,
        predicted_step_seconds=seconds,
        fits=size <= 100,
        bytes_error=0.1,
        **fields,
    )


def make_report(*strategies: PlannedStrategy) -> PlanReport:
    chosen = next((one for one in strategies if one.fits), None)
    return replace(REPORT, chosen=chosen, strategies=list(strategies), pareto=[], peak=None)


def test_a_fit_within_the_error_is_tight_and_the_fastest_with_room_is_named() -> None:
    report = make_report(make_strategy("bf16", 95, 1.0), make_strategy("bf16, gradient checkpointing", 60, 1.3))
    assert report.answer == (
        "Fits, but tight: bf16, 95 of 100 B (86 to 106 B), 1.0 s per step, 10.0 s for your data. "
        "With room to spare: bf16 with gradient checkpointing, 60 B, 1.3 s per step."
    )
    assert "tight" in report.list_remarks(report.strategies[0])
    roomy = make_report(make_strategy("bf16", 80, 1.0))
    assert roomy.answer.startswith("Fits: bf16, 80 of 100 B, ")


def test_what_misses_by_less_than_the_error_is_tight_too() -> None:
    assert make_report(make_strategy("bf16", 105, 1.0)).answer.startswith("Does not fit, but it is tight: ")
    assert make_report(make_strategy("bf16", 150, 1.0)).answer.startswith("Does not fit: ")


def test_what_is_not_allowed_is_never_the_best_but_named_where_nothing_else_fits() -> None:
    lora = make_strategy("bf16, LoRA of rank 16", 40, 0.5, lossy=True, needs="allow=[bf16,lora]")
    assert make_report(make_strategy("bf16", 80, 1.0), lora).best == make_strategy("bf16", 80, 1.0)
    report = make_report(make_strategy("bf16", 150, 1.0))
    report = replace(report, strategies=[*report.strategies, lora])
    assert report.best is None
    assert report.smallest.label == "bf16"
    assert "lossy, it would fit: bf16 with LoRA of rank 16, 40 B, 500 ms per step (allow=[bf16,lora])" in report.answer
    assert report.list_remarks(lora) == ["lossy: allow=[bf16,lora]"]


def test_the_best_is_never_beaten_in_both_by_what_counts_as_equally_fast() -> None:
    chosen = make_strategy("bf16", 80, 1.0)
    shared = make_strategy("bf16", 60, 0.99, layout="ddp x 2", by_formula=True, gpus=2)
    assert make_report(chosen, shared).best == shared
    assert make_report(chosen, replace(shared, predicted_bytes=90)).best == chosen


def test_terms_of_memory_are_named_and_sum_to_the_whole() -> None:
    blocks = MemoryPart("encoder blocks", 30, [MemoryPart("feed-forward", 10), MemoryPart("attention states", 20)])
    parts = [MemoryPart("activations", 30, [blocks]), MemoryPart("weights", 40)]
    peak = replace(PEAK, parts=parts, allocated_bytes=72, reserved_bytes=75, context_bytes=25)
    assert peak.list_terms() == [
        ("weights", 40),
        ("the CUDA context", 25),
        ("encoder attention states", 20),
        ("encoder feed-forward", 10),
        ("rounding and fragmentation by the allocator", 5),
    ]
