from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.profiling import measure
from seqfit.profiling.findings import Finding
from seqfit.profiling.profile import Proof, prove
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.training.setup import TrainingSetup, build_setup, resolve_recipe
from seqfit.training.view import SilentView

PADDING = Finding("padding", "much is padding", "Run real tokens only", ("strategy.batching=packed",), 0.5)

# Steps are timed here, and a plan would choose another strategy.
pytestmark = pytest.mark.usefixtures("no_prediction")


def build(recipe: Recipe) -> TrainingSetup:
    return build_setup(resolve_recipe(recipe), SilentView())[0]


def test_gains_are_shares_saved_round_by_round() -> None:
    proof = Proof(PADDING, [1.0, 2.0, 4.0], [0.5, 1.5, 3.9])
    assert proof.gains == pytest.approx([0.5, 0.25, 0.025])
    assert proof.measured_gain == pytest.approx(0.25)
    assert proof.is_confirmed


def test_a_round_without_a_gain_confirms_nothing() -> None:
    assert not Proof(PADDING, [1.0, 1.0], [0.5, 1.0]).is_confirmed


def test_padding_that_is_most_of_the_work_is_seen_to_go(
    word_recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the processor's time: others may have the core in the middle of a step."""
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=time.process_time))
    overrides = ["strategy.batching=max_length", "task.max_source_tokens=512", "strategy.micro_batch_tokens=512"]
    proof = prove(load_recipe(word_recipe, overrides), PADDING, build, steps=2, repeats=1)
    assert proof.measured_gain > 0.3


def test_memory_is_proved_by_the_peak_of_a_step(word_recipe: dict[str, Any]) -> None:
    finding = Finding("recompute", "-", "-", ("strategy.recompute=blocks",), 0.3, "memory")
    proof = prove(load_recipe(word_recipe), finding, build, steps=1, repeats=2)
    assert proof.is_confirmed
    assert proof.gains[0] == pytest.approx(proof.gains[1], abs=0.02)  # bytes, not times: rounds agree


def test_a_fix_that_is_no_setting_cannot_be_proved(word_recipe: dict[str, Any]) -> None:
    finding = Finding("throttling", "hot", "Cool it", (), 0.1)
    with pytest.raises(RecipeError, match=r"throttling.*No setting.*Cool it"):
        prove(load_recipe(word_recipe), finding, build, steps=1)
