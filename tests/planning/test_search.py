from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, T5Config

from seqfit.errors import PlanError
from seqfit.hardware.cards import find_card
from seqfit.model.load import ModelConfig
from seqfit.planning.candidates import Variant, build_variant, list_layouts
from seqfit.planning.cluster import ONE_GPU, GpuLayout
from seqfit.planning.placement import PlanCandidate, PlanRequest, pareto_front
from seqfit.planning.search import (
    Plan,
    predict_strategy,
    predict_strategy_quickly,
    search,
    search_quickly,
    trace_variant,
)
from seqfit.planning.second_process import SERVE_TRACES
from seqfit.planning.shape import assume_workload
from seqfit.planning.step_model import StepModel
from seqfit.planning.target import Target, card_target
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

Make = Callable[..., PlanRequest]
PLAIN = {"recompute": "none", "attention": "auto"}  # each further choice is a second or two of tracing


@pytest.fixture
def model_config(model_config: ModelConfig) -> ModelConfig:
    """One layer: half as much to trace."""
    model_config.config.num_layers = model_config.config.num_decoder_layers = 1
    return model_config


@pytest.fixture(scope="module", autouse=True)
def _traced_once() -> Iterator[None]:
    """A variant of one model that several tests need is traced for the first of them: it takes seconds."""
    known: dict[tuple[Any, ...], StepModel] = {}

    def trace(request: PlanRequest, variant: Variant) -> StepModel:
        workload = request.workload
        key = (
            variant,
            request.target.rules,
            request.model_config.config.to_json_string(),
            request.model.model_dump_json(),
            request.train.model_dump_json(),
            *(tuple(lengths.tolist()) for lengths in (workload.source_lengths, workload.target_lengths)),
            *(tuple(rows.tolist()) for rows in workload.steps),
        )
        if key not in known:
            known[key] = trace_variant(request, variant)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqfit.planning.search.trace_variant", trace)
        yield


@pytest.fixture(scope="module")
def recomputing() -> tuple[PlanRequest, Plan]:
    """A search that only recompute is left open for, with two layers, so that every other block is not every block."""
    config = T5Config(
        vocab_size=256, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    request = PlanRequest(
        model_config=ModelConfig(config, {}, AutoModelForSeq2SeqLM),
        model=ModelRecipe(path="model"),
        train=TrainRecipe(),
        allow=("bf16",),
        fixed={"micro_batch_tokens": 100_000, "precision": "bf16", "attention": "auto"},
        workload=assume_workload(64, 128, 16),
        target=card_target(find_card("rtx3090"), 1),
        lengths_are_assumed=True,
    )
    return request, search(request)


def make_candidate(seconds: float, size: int) -> PlanCandidate:
    variant = Variant((), "fp32")
    return PlanCandidate(variant, variant.strategy, ONE_GPU, size, seconds, 1.0, 100)


def test_the_pareto_front_holds_what_nothing_beats_in_both() -> None:
    candidates = [make_candidate(1, 90), make_candidate(2, 95), make_candidate(3, 40), make_candidate(4, 40)]
    front = pareto_front(candidates)
    assert [(item.step_seconds, item.total_bytes) for item in front] == [(1, 90), (3, 40)]


def test_where_all_fits_the_plainest_is_chosen_and_verified(recomputing: tuple[PlanRequest, Plan]) -> None:
    plan = recomputing[1]
    assert plan.chosen is not None
    assert plan.peak is not None
    assert plan.chosen.fits
    assert plan.chosen.strategy.recompute == "none"
    assert plan.peak.reserved_bytes + plan.peak.context_bytes == plan.chosen.total_bytes
    labels = {candidate.variant.label for candidate in plan.best_of_each}
    assert labels == {"bf16", "bf16, gradient checkpointing (every block)"}
    every_other = next(refusal for refusal in plan.refusals if "every other block" in refusal.what)
    assert every_other.why.startswith("memory is not short")


def test_a_gpu_that_is_too_small_for_the_plain_strategy_gets_gradient_checkpointing(
    recomputing: tuple[PlanRequest, Plan],
) -> None:
    request, roomy = recomputing
    sizes = {candidate.variant.label: candidate.total_bytes for candidate in roomy.best_of_each}
    between = (sizes["bf16"] + sizes["bf16, gradient checkpointing (every block)"]) // 2
    plan = search(replace(request, target=replace(request.target, capacity_bytes=between)))
    assert plan.chosen is not None
    assert plan.chosen.strategy.recompute != "none"
    found = {item.variant.label: item for item in plan.best_of_each}
    assert not found["bf16"].fits
    assert "bf16, gradient checkpointing (every other block)" in found


def test_nothing_fits_a_gpu_that_is_too_small(make_request: Make, card: Target) -> None:
    request = make_request(target=replace(card, capacity_bytes=2**20), fixed={**PLAIN, "precision": "fp32"})
    plan = search(request)
    assert plan.chosen is None
    assert not any(candidate.fits for candidate in plan.best_of_each)
    assert search_quickly(request) is None


def test_lossy_strategies_are_tried_only_where_they_are_allowed(make_request: Make) -> None:
    strict = search(make_request(allow=(), fixed=PLAIN))
    assert {candidate.variant.precision for candidate in strict.best_of_each} == {"fp32"}
    assert "bf16" in {refusal.what for refusal in strict.refusals}
    free = search(make_request(allow=("bf16", "lora", "8bit"), fixed={**PLAIN, "precision": "bf16"}))
    sizes = {candidate.variant.label: candidate.total_bytes for candidate in free.best_of_each}
    assert set(sizes) == {"bf16", "bf16, 8-bit AdamW", "bf16, LoRA of rank 16"}
    assert sizes["bf16, 8-bit AdamW"] < sizes["bf16"]


def test_smaller_micro_batches_take_less_memory_and_more_time(make_request: Make) -> None:
    request = make_request(workload=assume_workload(64, 128, 16))
    small, small_seconds = predict_strategy_quickly(request, Strategy(micro_batch_tokens=512), "fp32")
    large, large_seconds = predict_strategy_quickly(request, Strategy(micro_batch_tokens=16_384), "fp32")
    assert small.allocated_bytes < large.allocated_bytes
    assert small_seconds > large_seconds


@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_more_examples_take_more_memory(make_request: Make, batching: Any) -> None:
    sizes = [
        predict_strategy_quickly(
            make_request(workload=assume_workload(count, 64, 8)), Strategy(batching=batching), "fp32"
        )[0]
        for count in (8, 16)
    ]
    assert sizes[0].parts["activations"] < sizes[1].parts["activations"]


def test_a_strategy_of_8_bits_is_predicted_without_its_package(make_request: Make) -> None:
    request = make_request()
    whole, _, _ = predict_strategy(request, Strategy(), "fp32")
    eight, tape, _ = predict_strategy(request, Strategy(optimizer="8bit"), "fp32")
    state = sum(block.bytes for block in tape.blocks if block.category == "optimizer state")
    assert eight.parts["optimizer state"] == state
    assert 0.25 < state / whole.parts["optimizer state"] < 0.27


def test_bf16_is_refused_on_a_gpu_without_it(make_request: Make) -> None:
    request = make_request(target=card_target(find_card("t4"), 1))
    with pytest.raises(PlanError, match=r"has no bf16 in hardware. Set strategy.precision=fp32"):
        predict_strategy(request, Strategy(precision="bf16"), "bf16")


def test_updates_in_backward_are_tried_without_clipping_and_their_price_is_reported(make_request: Make) -> None:
    fixed = {**PLAIN, "precision": "fp32"}
    plan = search(make_request(train=TrainRecipe(clip_norm=None), fixed=fixed))
    sizes = {candidate.variant.label: candidate.total_bytes for candidate in plan.best_of_each}
    assert sizes["fp32, optimizer in backward"] < sizes["fp32"]
    assert plan.chosen is not None
    assert any("last snapshot" in event for event in plan.events) == plan.chosen.strategy.optimizer_in_backward


def test_two_gpus_are_compared_on_every_layout_that_training_has(make_request: Make, card: Target) -> None:
    fixed = {**PLAIN, "precision": "fp32"}
    plan = search(make_request(fixed=fixed, layouts=list_layouts(2), target=replace(card, count=2)))
    layouts = {str(candidate.layout): candidate for candidate in plan.best_of_each}
    assert set(layouts) == {"one GPU", "ddp x 2", "fsdp x 2", "pipeline x 2", "fsdp x 2, offload"}
    assert layouts["ddp x 2"].strategy.parallel == "ddp"
    assert layouts["fsdp x 2, offload"].strategy.offload
    assert [one.host_bytes > 0 for one in layouts.values()] == [layout == "fsdp x 2, offload" for layout in layouts]
    assert layouts["fsdp x 2, offload"].total_bytes < layouts["fsdp x 2"].total_bytes
    old = next(refusal.why for refusal in plan.refusals if refusal.what == "dataparallel x 2")
    assert old.startswith("torch's nn.DataParallel, which seqfit does not offer; fp32 would need ")


def test_a_strategy_for_several_processes_updates_nothing_in_the_backward(make_request: Make) -> None:
    fixed = {**PLAIN, "precision": "fp32", "optimizer_in_backward": True}
    request = make_request(train=TrainRecipe(clip_norm=None), fixed=fixed)
    assert search_quickly(request) is not None
    assert search_quickly(request, [GpuLayout("ddp", 2)]) is None


def test_the_second_process_traces_the_same(recomputing: tuple[PlanRequest, Plan]) -> None:
    request, _ = recomputing
    variant = build_variant(Strategy(micro_batch_tokens=100_000), "bf16")
    given = pickle.dumps(request) + pickle.dumps(variant)
    command = [sys.executable, "-c", SERVE_TRACES]
    done = subprocess.run(command, input=given, capture_output=True, check=True, timeout=120)
    output = io.BytesIO(done.stdout)
    assert pickle.load(output) == "ready"
    there, here = pickle.load(output), trace_variant(request, variant)
    assert there.template.tape.events == here.template.tape.events
    assert (there.template.block_bytes == here.template.block_bytes).all()
