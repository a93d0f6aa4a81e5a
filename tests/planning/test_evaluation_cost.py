"""What evaluations add to plans. tests/agreement/test_planned_evaluation.py compares their memory with a real one's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForSeq2SeqLM, T5Config

from seqfit.model.load import ModelConfig
from seqfit.planning import evaluation_cost
from seqfit.planning.candidates import build_variant
from seqfit.planning.cluster import ONE_GPU, GpuLayout
from seqfit.planning.device_rules import GPU_RULES, rules_for
from seqfit.planning.evaluation_cost import EvaluationModel, Evaluations, add_lasting
from seqfit.planning.evaluation_work import EvaluationWork
from seqfit.planning.fake_step import StepSpec
from seqfit.planning.search import find_evaluation, search
from seqfit.planning.tape import GRADIENTS, STATE, WEIGHTS
from seqfit.planning.target import card_target
from seqfit.planning.timing import rates_of_card
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

SHAPE = {"vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "decoder_start_token_id": 0}


def build_work(**fields: Any) -> EvaluationWork:
    draw = np.random.default_rng(0)
    sources, targets = (draw.integers(5, longest, 60).astype(np.int32) for longest in (90, 20))
    chosen = {"times": 3, "batch_tokens": 1000, "beams": 1, "max_new_tokens": 25, **fields}
    return EvaluationWork(**{"source_lengths": sources, "target_lengths": targets, **chosen})


@pytest.fixture
def spec() -> StepSpec:
    config = T5Config(**SHAPE, num_layers=6, num_decoder_layers=5)
    model_config = ModelConfig(config, {}, AutoModelForSeq2SeqLM)
    return StepSpec(model_config, ModelRecipe(path="x"), TrainRecipe(), Strategy(), "bf16", GPU_RULES)


@pytest.mark.parametrize("beams", [1, 3])
def test_two_depths_tell_what_all_layers_need(
    beams: int, spec: StepSpec, card: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = rates_of_card(card.card, "bf16")
    shallow = EvaluationModel(spec, build_work(beams=beams))
    monkeypatch.setattr(evaluation_cost, "_DEPTHS", (10, 11))
    whole = EvaluationModel(spec, build_work(beams=beams))
    assert shallow.working_bytes == pytest.approx(whole.working_bytes, rel=0.01)
    assert shallow.seconds(rates) == pytest.approx(whole.seconds(rates), rel=0.01)


def test_more_beams_are_searched_with_fewer_rows_and_never_take_less_time(spec: StepSpec, card: Any) -> None:
    rates = rates_of_card(card.card, "bf16")
    few, many = (EvaluationModel(spec, build_work(beams=beams)) for beams in (2, 8))
    assert many.working_bytes < 2 * few.working_bytes
    assert many.seconds(rates) >= few.seconds(rates)  # so small a model waits for its host


def test_longer_answers_take_more_of_both(spec: StepSpec, card: Any) -> None:
    rates = rates_of_card(card.card, "bf16")
    work = build_work()
    longer = replace(work, target_lengths=work.target_lengths * 4, max_new_tokens=100)
    short, long = (EvaluationModel(spec, one) for one in (work, longer))
    assert long.working_bytes > short.working_bytes
    assert long.seconds(rates) > 2 * short.seconds(rates)


@pytest.mark.parametrize(
    ("layout", "lasting"),
    [
        (ONE_GPU, 300),
        (GpuLayout("ddp", 2), 400),  # gradients stay in the buckets
        (GpuLayout("fsdp", 2), 250),  # half of weights and state, and all weights gathered
        (GpuLayout("pipeline", 4), 175),
        (GpuLayout("offload", 2), 100),
    ],
)
def test_each_layout_keeps_its_own_share(layout: GpuLayout, lasting: int) -> None:
    parts = {WEIGHTS: 100, STATE: 200, GRADIENTS: 50}
    assert add_lasting(7, layout, parts, 100) == lasting + 7


MUCH = {"batch_tokens": 10**5, "max_new_tokens": 9000}
PLAINEST = {"precision": "bf16", "recompute": "none", "optimizer_in_backward": False, "attention": "auto"}


def test_an_evaluation_that_needs_more_than_a_step_is_the_peak(make_request: Any) -> None:
    small, large, none = (
        search(make_request(fixed=PLAINEST, evaluations=evaluations)).chosen
        for evaluations in (Evaluations(build_work(max_new_tokens=2)), Evaluations(build_work(**MUCH)), None)
    )
    assert small is not None
    assert large is not None
    assert none is not None
    assert small.total_bytes == none.total_bytes > small.evaluation_bytes > 0
    assert large.total_bytes == large.evaluation_bytes > none.total_bytes


def test_what_an_evaluation_can_not_hold_does_not_fit(make_request: Any, card: Any) -> None:
    evaluations = Evaluations(build_work(**MUCH))
    fits = search(make_request(fixed=PLAINEST, evaluations=evaluations)).chosen
    assert fits is not None
    smaller = card_target(card.card, 1, free_bytes=fits.total_bytes - 2**20)
    assert search(make_request(fixed=PLAINEST, target=smaller, evaluations=evaluations)).chosen is None


def test_strategies_that_evaluate_alike_are_traced_once(make_request: Any) -> None:
    request = make_request(evaluations=Evaluations(build_work()))

    def find(precision: str, **fields: Any) -> EvaluationModel | None:
        return find_evaluation(request, build_variant(Strategy(**fields), precision))

    assert find("bf16") is find("bf16", recompute="blocks", optimizer="adafactor")
    assert find("bf16") is not find("fp32")
    assert find("bf16") is not find("bf16", lora_rank=4)


def test_on_a_cpu_pieces_are_smaller(spec: StepSpec) -> None:
    work = build_work(batch_tokens=10**5)
    on_cpu = EvaluationModel(replace(spec, rules=rules_for("cpu"), precision="fp32"), work)
    on_gpu = EvaluationModel(replace(spec, precision="fp32"), work)
    assert len(on_cpu._pieces) > len(on_gpu._pieces) == 1
