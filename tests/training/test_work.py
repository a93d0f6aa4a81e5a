from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.data.loader import GlobalBatch
from seqfit.hardware.cards import find_card
from seqfit.step.precision import Precision
from seqfit.training.log import describe_step_work, find_peak_rate
from seqfit.training.setup import build_setup, resolve_recipe
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

Recipe = dict[str, Any]

# What a batch costs is counted without a plan.
pytestmark = pytest.mark.usefixtures("no_prediction")


@pytest.mark.parametrize("batching", ["packed", "padded"])
def test_a_batch_costs_what_its_real_tokens_cost_however_it_is_padded(word_recipe: Recipe, batching: str) -> None:
    setup, data = build_setup(
        resolve_recipe(load_checked_recipe(word_recipe, [f"strategy.batching={batching}"])), SilentView()
    )
    work = describe_step_work(setup)
    batch: GlobalBatch = next(setup.loader.iterate())
    split = data.splits["train"]
    assert work.shape is not None
    one_by_one = sum(
        work.shape.training_flops([split.source_lengths[row]], [split.target_lengths[row]])
        for row in np.asarray(batch.rows)
    )
    assert work.count(batch) == one_by_one


def test_adapters_make_the_count_absent_with_a_reason(word_recipe: Recipe) -> None:
    recipe = load_checked_recipe(word_recipe, ["model.freeze=[encoder]"])
    setup, _ = build_setup(resolve_recipe(recipe), SilentView())
    work = describe_step_work(setup)
    assert work.count(next(setup.loader.iterate())) is None
    assert "frozen" in work.absent["model_flops_per_second"]


def test_a_cpu_has_no_known_peak() -> None:
    assert find_peak_rate(Precision("fp32", torch.device("cpu"), "")) == (None, "the peak rate of a CPU is unknown")


@pytest.mark.parametrize(
    ("precision", "matmul", "rate"),
    [("fp32", "highest", "fp32"), ("fp32", "high", "tf32"), ("bf16", "highest", "bf16"), ("fp16", "high", "fp16")],
)
def test_a_cards_peak_is_that_of_the_units_in_use(
    monkeypatch: pytest.MonkeyPatch, precision: str, matmul: str, rate: str
) -> None:
    properties = SimpleNamespace(name="NVIDIA GeForce RTX 3090", total_memory=24_576 * 2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: matmul)
    rates = {str(name): value for name, value in find_card("rtx3090").flops_per_second.items()}
    assert find_peak_rate(Precision(precision, torch.device("cuda"), "")) == (rates[rate], "")


def test_a_card_that_is_not_in_the_table_has_no_known_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="Card of Tomorrow", total_memory=2**40)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    peak, reason = find_peak_rate(Precision("bf16", torch.device("cuda"), ""))
    assert peak is None
    assert reason == "Card of Tomorrow is not in the table of GPUs"
